/* What if: a model, its sizes changed, and what it costs. */
(() => {
  const { data, element, short, grouped, numberNode } = elements;

  const { models, recipes, dtypes, rows, start } = data.whatif;

  /** Exact answers as [numerator, denominator] pairs of BigInts. `state.sizes`, B, T, D, G, R: BigInts. */
  const evaluate = (state) => {
    const own = FORMULAS.models[state.model];
    const [b_above, b_below, b_group, b_constants] = rows[state.cache].map(BigInt);
    const [weightAbove, weightBelow] = dtypes[state.dtype].map(BigInt);
    const given = { ...state.sizes, B: state.B, T: state.T, b_above, b_below, b_group, b_constants };
    const found = {};
    for (const [name, formula] of Object.entries(own)) found[name] = formula(given);
    const [N] = found.parameters;
    const counts = Object.fromEntries(Object.entries(found).map(([name, [count]]) => [name, count]));
    const [active] = found.active;
    const { D, G, R, T } = state;
    found.missed = [N - found.rule[0], 1n];
    found.error = [N - found.rule[0], N];
    found.weights = [N * weightAbove, weightBelow];
    for (const [name, formula] of Object.entries(FORMULAS.recipes[state.recipe])) found[`state_${name}`] = formula({ ...counts, G });
    found.train_rough = FORMULAS.rules.rule_flops({ N: found.rule[0], D });
    found.train_rule = FORMULAS.rules.rule_flops({ N: active, D });
    found.train_exact = FORMULAS.rules.exact_flops({ F: found.train[0], D, T });
    const seconds = ([F, one]) => {
      const [above, below] = FORMULAS.rules.seconds({ F, G, R });
      return [above, below * one];
    };
    found.seconds_rough = seconds(found.train_rough);
    found.seconds_rule = seconds(found.train_rule);
    found.seconds_exact = seconds(found.train_exact);
    return found;
  };
  globalThis.transformerLedger = { evaluate };

  const form = document.getElementById("calculator");
  const setUp = () => {
    const KNOBS = {
      L: ["layers", "", 1, 256], d: ["width d", "", 16, 32768], h: ["heads", "", 1, 256], h_kv: ["K/V heads", "", 1, 256],
      d_h: ["head width", "", 2, 1024], f: ["feed-forward width", "", 16, 131072], V: ["vocabulary", "tokens", 16, 1048576],
      C: ["learned positions", "rows", 1, 1048576], w: ["window", "tokens", 1, 1048576], E: ["experts", "", 1, 1024], k: ["experts a token", "", 1, 128],
      B: ["batch", "sequences", 1, 4096], T: ["context", "tokens", 1, 1048576], D: ["training tokens", "10⁹", 0.001, 100000],
      G: ["devices", "", 1, 131072], R: ["sustained rate", "TFLOP/s", 0.1, 10000], M: ["memory a device", "GB", 1, 1024],
      P: ["reserve", "% left free", 0.1, 90],
    };
    const DECIMALS = { D: 9, R: 12, M: 9, P: 13 };
    // The address: symbols or words; tokens and FLOP/s in ones, memory in GB, the reserve in %.
    const ADDRESS_DECIMALS = { M: 9, P: 13 };
    const WORDS = {
      layers: "L", d_model: "d", heads: "h", kv_heads: "h_kv", head_dim: "d_h", d_ff: "f", vocabulary: "V", position_rows: "C", window: "w",
      experts: "E", experts_per_token: "k", batch: "B", context: "T", tokens: "D", devices: "G", rate: "R", memory: "M", reserve: "P", weights: "dtype",
    };
    const WHOLE = 10n ** 15n;  // 100 %
    const SIZES = ["L", "d", "h", "h_kv", "d_h", "f", "V", "C", "w", "E", "k"];
    const defaults = { B: 1n, D: BigInt(start.tokens ?? 15e12), G: BigInt(start.devices), R: BigInt(start.flops_per_second_per_device ?? 4e14), M: BigInt(start.device.memory_bytes), P: BigInt(Math.round(start.device.reserve * 1e15)) };
    const names = Object.keys(models);
    const firstModel = names.includes(start.model) ? start.model : names[0];
    const state = { model: firstModel };
    let ignored = [];  // what the address asked for in vain
    const knobs = {};
    const selects = {};
    const controls = form.querySelector(".controls");
    const results = form.querySelector(".results");

    const shift = (text, places) => {  // "12.5" × 10^places as a BigInt, or null
      const match = /^(\d+)(?:\.(\d+))?$/.exec(text.trim());
      if (!match) return null;
      const part = (match[2] ?? "").padEnd(places, "0");
      return /[1-9]/.test(part.slice(places)) ? null : BigInt(match[1] + part.slice(0, places));
    };
    const unshift = (value, places) => {
      if (!places) return String(value);
      const digits = String(value).padStart(places + 1, "0");
      const part = digits.slice(-places).replace(/0+$/, "");
      return digits.slice(0, -places) + (part ? `.${part}` : "");
    };
    const valid = (name, value) => value != null && (name === "P" ? value < WHOLE : value > 0n);
    const wanted = (name, places) => (name === "P" ? "a percentage below 100" : `a positive ${places ? "number" : "integer"}`);
    const STEPS = 1000;
    const position = (value, low, high) => Math.round((STEPS * Math.log(Math.max(value, low) / low)) / Math.log(high / low));
    // A slider's value: round in binary (sizes) or in decimals (quantities), and never the one it came from.
    const snapped = (where, current, low, high, decimals) => {
      const value = low * Math.exp((where / STEPS) * Math.log(high / low));
      const step = decimals ? 10 ** (Math.floor(Math.log10(value)) - 2) : 2 ** Math.max(0, Math.floor(Math.log2(value)) - 4);
      let round = Math.round(value / step) * step;
      if (Math.abs(round - current) < step / 2) round = current + step * Math.sign(where - position(current, low, high));
      return Number(Math.max(low, round).toPrecision(12));
    };

    const knob = (name) => {
      const [label, unit, low, high] = KNOBS[name];
      const number = element("input", { type: "number", id: `knob-${name}`, min: low < 1 ? "0" : String(low), step: DECIMALS[name] ? "any" : "1", required: true, inputmode: "decimal" });
      const range = element("input", { type: "range", min: "0", max: String(STEPS), "aria-label": `${label}, slider` });
      const row = element("div", { class: "knob", "data-knob": name },
        element("label", { for: `knob-${name}` }, label, unit ? element("span", { class: "unit" }, ` ${unit}`) : null), range, number);
      const places = DECIMALS[name] ?? 0;
      const put = (value) => {
        number.value = unshift(value, places);
        range.value = String(position(Number(number.value), low, high));
        range.setAttribute("aria-valuetext", `${grouped(number.value)} ${unit}`);
      };
      number.addEventListener("input", () => {
        const value = shift(number.value, places);
        number.setAttribute("aria-invalid", String(!valid(name, value)));
        if (!valid(name, value)) return report([`${label}: ${number.value || "nothing"} is not ${wanted(name, places)}.`]);
        range.value = String(position(Number(number.value), low, high));
        change(name, value);
      });
      range.addEventListener("input", () => {
        const value = shift(String(snapped(Number(range.value), Number(unshift(state[name], places)), low, high, places)), places);
        number.removeAttribute("aria-invalid");
        put(value);
        change(name, value);
      });
      knobs[name] = { row, put };
      return row;
    };
    const select = (name, label, options) => {
      const box = element("select", { id: `knob-${name}` }, ...options.map(([value, text]) => element("option", { value }, text)));
      box.addEventListener("change", () => change(name, box.value));
      selects[name] = box;
      return element("div", { class: "knob" }, element("label", { for: `knob-${name}` }, label), box);
    };
    const typed = Object.keys(dtypes).map((name) => [name, name]);
    const share = element("button", { type: "button" }, "Copy link");
    const reset = element("button", { type: "button" }, "Reset");
    controls.append(
      select("model", "start from", names.map((name) => [name, models[name].label])),
      element("fieldset", {}, element("legend", {}, "Architecture"), ...SIZES.map(knob)),
      element("fieldset", {}, element("legend", {}, "Run"), knob("B"), knob("T"), select("dtype", "weights", typed), select("cache", "cache", typed)),
      element("fieldset", {}, element("legend", {}, "Training"), knob("D"), knob("G"), knob("R"), select("recipe", "recipe", Object.keys(recipes).map((name) => [name, name]))),
      element("fieldset", {}, element("legend", {}, "Device"), knob("M"), knob("P")),
      element("div", { class: "tools" }, reset, share),
    );

    const own = (name) => {
      const { sizes, context, run } = models[name];
      const out = { ...defaults, T: BigInt(Math.min(context, 4096)), dtype: "bf16", cache: "bf16", recipe: start.recipe };
      for (const [size, value] of Object.entries({ ...sizes, ...run })) out[size] = BigInt(value);
      return out;
    };
    const load = (model, changes = {}) => {
      for (const key of Object.keys(state)) delete state[key];
      Object.assign(state, { model }, own(model));
      ignored = [];
      for (const [key, text] of Object.entries(changes)) {
        const name = Object.hasOwn(WORDS, key) ? WORDS[key] : key;
        const places = ADDRESS_DECIMALS[name] ?? 0;
        if (Object.hasOwn(selects, name)) {
          if ([...selects[name].options].some((option) => option.value === text)) state[name] = text;
          else ignored.push(`The address: no ${key} named ${text}.`);
        } else if (!Object.hasOwn(KNOBS, name)) ignored.push(`The address: unknown key ${key}.`);
        else if (!(name in state)) ignored.push(`The address: ${models[model].label} has no ${key}.`);
        else if (!valid(name, shift(text, places))) ignored.push(`The address: ${key} ${text} is not ${wanted(name, places)}.`);
        else state[name] = shift(text, places);
      }
      for (const [name, { row, put }] of Object.entries(knobs)) {
        row.hidden = !(name in state);
        row.style.display = row.hidden ? "none" : "";
        if (name in state) put(state[name]);
      }
      for (const [name, box] of Object.entries(selects)) box.value = state[name];
      update();
    };
    const change = (name, value) => {
      if (name === "model") return load(value), remember();
      state[name] = value;
      ignored = [];
      // A head is d/h wide unless the model, or its user, says otherwise.
      if ((name === "d" || name === "h") && models[state.model].follows && state.d % state.h === 0n) {
        state.d_h = state.d / state.h;
        knobs.d_h.put(state.d_h);
      }
      update();
      remember();
    };
    const changes = () => {
      const usual = own(state.model);
      return Object.entries(state).filter(([name, value]) => name !== "model" && value !== usual[name]);
    };
    const remember = () => {
      const query = new URLSearchParams([["model", state.model], ...changes().map(([name, value]) => [name, unshift(value, ADDRESS_DECIMALS[name])])]);
      history.replaceState(null, "", `#what-if?${query}`);
    };
    const recall = () => {
      const [id, query] = location.hash.slice(1).split("?");
      if (id !== "what-if" || !query) return false;
      const { model, ...rest } = Object.fromEntries(new URLSearchParams(query));
      const known = model === undefined || names.includes(model);
      load(known ? model ?? firstModel : firstModel, rest);
      if (!known) {
        ignored.unshift(`The address: no model named ${model}; this is ${models[firstModel].label}.`);
        update();
      }
      return true;
    };

    const problems = () => {
      const { follows, rotary, others } = models[state.model];
      const found = [];
      const say = (bad, text) => bad && found.push(text);
      if ("h_kv" in state) say(state.h % state.h_kv !== 0n, `${state.h_kv} K/V heads do not divide ${state.h} heads.`);
      if (follows) say(state.d % state.h !== 0n && state.d_h * state.h !== state.d, `${state.h} heads do not divide the width ${state.d}; the head width stays ${state.d_h}.`);
      if (rotary && "d_h" in state) say(state.d_h % 2n !== 0n, `Rotary positions pair the components, so the head width ${state.d_h} must be even.`);
      if ("E" in state) say(state.k > state.E, `${state.k} experts a token are more than ${state.E}.`);
      if ("C" in state) say(state.T > state.C, `A context of ${grouped(state.T)} is longer than the ${grouped(state.C)} learned positions.`);
      say(state.L <= BigInt(others), `This model has ${others} layers of other kinds; it needs more layers than that.`);
      return found;
    };

    // significant digits of a quotient of BigInts
    const ratio = ([above, below]) => {
      if (above === 0n) return 0;
      const scale = BigInt(Math.max(0, 20 - (String(above).length - String(below).length)));
      return Number((above * 10n ** scale) / below) / Number(10n ** scale);
    };
    const integer = ([above, below]) => (above % below === 0n ? above / below : null);
    const text = (fraction, digits) => {
      const whole = integer(fraction);
      return whole == null ? short(ratio(fraction), digits) : short(String(whole), digits);
    };
    const node = (fraction, unit = "", digits = 5) => {
      const whole = integer(fraction);
      const shown = whole == null ? numberNode(ratio(fraction), digits) : numberNode(String(whole), digits);
      return element("span", {}, shown, unit ? ` ${unit}` : "");
    };
    const UNITS = [[50n, "PiB"], [40n, "TiB"], [30n, "GiB"], [20n, "MiB"], [10n, "KiB"]];
    const bytes = ([above, below]) => {
      const whole = String((above + below - 1n) / below);
      for (const [power, unit] of UNITS) {
        if (above >= below << power) {
          const out = element("span", { class: "n", title: `${grouped(whole)} bytes` });
          out.append(element("span", { class: "brief" }, `${short(ratio([above, below << power]), 4)} ${unit}`), element("span", { class: "full" }, `${grouped(whole)} bytes`));
          return out;
        }
      }
      return element("span", {}, `${grouped(whole)} bytes`);
    };
    const add = ([a, b], [c, e]) => [a * e + c * b, b * e];
    const fits = (need, room) => {
      const yes = need[0] <= room * need[1];
      const spare = yes ? [room * need[1] - need[0], need[1]] : [need[0] - room * need[1], need[1]];
      return element("span", { class: yes ? "yes" : "no" }, yes ? "fits, " : "does not fit, ", bytes(spare), yes ? " left" : " too much");
    };
    const day = ([above, below]) => [above, below * 86400n];

    const glance = form.querySelector(".glance");
    const report = (lines) => results.replaceChildren(...lines.map((line) => element("p", { class: "problem" }, line)));
    const update = () => {
      const wrong = problems();
      const soft = wrong.filter((line) => line.includes("stays") || line.startsWith("A context"));
      if (wrong.length > soft.length) return report([...ignored, ...wrong]);
      const sizes = Object.fromEntries(SIZES.filter((name) => name in state).map((name) => [name, state[name]]));
      const found = evaluate({ ...state, sizes });
      const [N] = found.parameters;
      const gap = found.missed[0];
      const magnitude = gap < 0n ? -gap : gap;
      const percentage = short(ratio([100n * magnitude, N]), 3);
      const room = (state.M * (WHOLE - state.P)) / WHOLE;
      const roomText = `${unshift(room, 9)} GB`;
      const plural = `${grouped(state.G)} device${state.G === 1n ? "" : "s"}`;
      const stage = recipes[state.recipe];
      const held = !stage ? "each device holds all of it: this recipe divides nothing (no ZeRO stage)"
        : state.G === 1n ? "one device holds all of it" : `on each of ${plural}, divided by ZeRO stage ${stage}`;
      const groups = [
        ["Parameters", [
          ["exact", element("strong", { class: "exact-count", title: String(N) }, grouped(N))],
          found.active[0] !== N && ["active", grouped(found.active[0])],
          ["by the rule 12Ld² + Vd", grouped(found.rule[0])],
          ["the rule’s error", element("span", { class: "rule-error" }, gap === 0n ? "none" : `${percentage} % too ${gap > 0n ? "few" : "many"}`, element("small", {}, `${grouped(magnitude)} parameters`))],
        ]],
        ["Memory of a device", [
          [`${unshift(state.M, 9)} GB less ${unshift(state.P, 13)} % reserve: ${roomText}, or`, bytes([room, 1n])],
        ]],
        ["Memory to run it: weights and cache alone", [
          [`weights, ${state.dtype}`, bytes(found.weights)],
          [`cache, ${state.cache}, ${grouped(state.B)} × ${grouped(state.T)} tokens`, bytes(found.cache)],
          [`both in ${roomText} of one device`, fits(add(found.weights, found.cache), room)],
        ]],
        ["Memory to train it: state alone, without activations", [
          [`state, ${state.recipe}`, bytes(found.state_total)],
          [held, bytes(found.state_share)],
          [`in ${roomText} of a device`, fits(found.state_share, room)],
        ]],
        ["Work", [
          [`forward, ${grouped(state.B)} × ${grouped(state.T)} tokens`, node(found.prefill, "FLOP")],
          ["one token more for each sequence", node(found.decode, "FLOP")],
          ["training, 6ND with N by the rule", node(found.train_rough, "FLOP", 4)],
          ["training, 6ND with the exact active N", node(found.train_rule, "FLOP", 4)],
          [`training, exact at ${grouped(state.T)} tokens a sequence`, node(found.train_exact, "FLOP", 4)],
          ["exact 6ND / exact", text([found.train_rule[0] * found.train_exact[1], found.train_rule[1] * found.train_exact[0]], 4)],
        ]],
        [`Time to train it on ${plural}`, [
          ["by 6ND with N by the rule", node(day(found.seconds_rough), "days", 4)],
          ["by 6ND with the exact N", node(day(found.seconds_rule), "days", 4)],
          ["by the exact count", node(day(found.seconds_exact), "days", 4)],
        ]],
      ];
      glance.textContent = `${short(String(N), 4)} parameters · rule ${percentage} % off · cache ${bytes(found.cache).firstChild.textContent}`;
      results.replaceChildren(
        ...[...ignored, ...soft].map((line) => element("p", { class: "problem" }, line)),
        ...groups.flatMap(([heading, rows]) => [
          element("h3", {}, heading),
          element("dl", {}, ...rows.filter(Boolean).map(([label, value]) => element("div", {}, element("dt", {}, label), element("dd", {}, value)))),
        ]),
      );
    };

    reset.addEventListener("click", () => {
      load(state.model);
      remember();
    });
    share.addEventListener("click", async () => {
      remember();
      try {
        await navigator.clipboard.writeText(location.href);
        share.textContent = "Copied";
      } catch {
        share.textContent = "The address bar has it";
      }
      setTimeout(() => (share.textContent = "Copy link"), 1500);
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    const keys = Object.entries(WORDS).map(([word, symbol]) => `${word} (${symbol})`).join(", ");
    form.after(element("p", { class: "note" }, `Keys of the address, #what-if?model=${firstModel}&batch=32&context=8192: model, cache, recipe, ${keys}; tokens and rate in ones [token, FLOP/s], memory in GB, reserve in %.`));
    form.hidden = false;
    addEventListener("hashchange", recall);
    if (!recall()) load(firstModel);
  };
  if (form) setUp();
})();
