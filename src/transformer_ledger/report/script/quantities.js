/* What a setting costs: the ledgers' own functions, exact, and the questions that work backwards from a device. */
const quantities = (() => {
  const { data } = elements;
  const { upper } = amounts;
  const { dtypes, rows } = data.whatif;

  const SIZES = ["L", "d", "h", "h_kv", "d_h", "f", "V", "C", "w", "E", "k"];
  const structure = (model) => FORMULAS.structures[FORMULAS.models[model]];
  const typed = (cache) => {
    const [b_above, b_below, b_group, b_constants] = rows[cache].map(BigInt);
    return { b_above, b_below, b_group, b_constants };
  };
  const given = (state) => ({ ...state.sizes, B: state.B, T: state.T, ...typed(state.cache) });

  /** Exact answers as [numerator, denominator] pairs of BigInts. `state.sizes`, B, T, D, G, R: BigInts. */
  const evaluate = (state) => {
    const arguments_ = given(state);
    const found = Object.fromEntries(Object.entries(structure(state.model).functions).map(([name, formula]) => [name, formula(arguments_)]));
    const [N] = found.parameters;
    const counts = Object.fromEntries(Object.entries(found).map(([name, [count]]) => [name, count]));
    const [weightAbove, weightBelow] = dtypes[state.dtype].map(BigInt);
    const { D, G, R, T } = state;
    found.missed = [N - found.rule[0], 1n];
    found.error = [N - found.rule[0], N];
    found.weights = [N * weightAbove, weightBelow];
    for (const [name, formula] of Object.entries(FORMULAS.recipes[state.recipe])) found[`state_${name}`] = formula({ ...counts, G });
    found.train_rough = FORMULAS.rules.rule_flops({ N: found.rule[0], D });
    found.train_rule = FORMULAS.rules.rule_flops({ N: found.active[0], D });
    found.train_exact = FORMULAS.rules.exact_flops({ F: found.train[0], D, T });
    for (const name of ["rough", "rule", "exact"]) {
      const [F, one] = found[`train_${name}`];
      const [above, below] = FORMULAS.rules.seconds({ F, G, R });
      found[`seconds_${name}`] = [above, below * one];
    }
    return found;
  };

  /** One quantity of a state with other B, T or sizes. */
  const one = (state, name, changes = {}) => structure(state.model).functions[name]({ ...given(state), ...changes });

  // The least integer from `low` to `high` at which `holds`, which stays true from there on; null where there is none.
  const least = (low, high, holds) => {
    if (!holds(high)) return null;
    while (low < high) {
      const middle = (low + high) / 2n;
      if (holds(middle)) high = middle;
      else low = middle + 1n;
    }
    return low;
  };
  const FAR = 1n << 40n;  // tokens or sequences; no device comes near

  /** Longest context, most sequences, fewest devices that fit `room` bytes; null without end, 0 where nothing fits. */
  const backwards = (state, found, room) => {
    const beside = room - upper(found.weights);
    const cache = (changes) => upper(one(state, "cache", changes));
    const most = (bytes) => {
      if (beside < 0n) return 0n;
      const first = least(1n, FAR, (n) => bytes(n) > beside);
      return first == null ? null : first - 1n;
    };
    const counts = Object.fromEntries(Object.entries(found).map(([name, [count]]) => [name, count]));
    const share = (G) => upper(FORMULAS.recipes[state.recipe].divided({ ...counts, G }));
    return {
      context: most((T) => cache({ T })),
      batch: most((B) => cache({ B })),
      devices: least(1n, found.parameters[0], (G) => share(G) <= room),
    };
  };

  return { SIZES, structure, evaluate, one, least, backwards };
})();
globalThis.transformerLedger = quantities;
