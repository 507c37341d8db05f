/* The calculator's figures and pictures, drawn anew for every setting. */
const results = (() => {
  const { data, element, short, grouped } = elements;
  const { ratio, text, node, bytes, bytesText, digits, upper, add, atMost, less } = amounts;
  const { structure, one, least } = quantities;
  const { colour } = draw;
  const { parts, work, recipes, dtypes } = data.whatif;

  // 46,702,792,704 → 46.7 G; what is below ten digits in full.
  const large = (count) => (String(count).length <= 10 ? grouped(count) : draw.brief(Number(count)).replace(/([A-Z])$/, " $1"));
  const signed = (value, places = 3) => `${value < 0 ? "−" : "+"}${short(Math.abs(value), places)}`;
  const percent = (value, places = 3) => `${signed(100 * value, places)} %`;
  const share = (part, whole) => Number(part) / Number(whole);
  const many = (count, name) => `${grouped(count)} ${name}${count === 1n ? "" : "s"}`;
  const day = ([above, below]) => [above, below * 86400n];
  const filled = (formula, values) => formula.replace(/[A-Za-z_]\w*/g, (name) => (name in values ? grouped(values[name]) : name));

  const state = {
    weights: "weights", master_weights: "fp32 weights", gradients: "gradients", master_gradients: "fp32 gradients",
    first_moment: "first moment", second_moment: "second moment", momentum: "momentum", largest_second_moment: "largest second moment", step: "step counters",
  };
  const named = (item) => state[item] ?? item.replaceAll("_", " ");

  // ---------------------------------------------------------------- rows of figures
  const against = (now, before, unit) => {
    if (before == null) return null;
    const change = ratio(before) ? ratio(now) / ratio(before) - 1 : null;
    return element("small", { class: "pinned" }, `pinned: ${unit(before)}${change == null || Math.abs(change) < 5e-5 ? "" : ` (${percent(change)})`}`);
  };
  /** key: of `found`; unit: how its fraction is read; formula: with its numbers in. */
  const row = (label, value, formula, pinned) =>
    element("div", {}, element("dt", {}, label), element("dd", {}, value, pinned ?? null), formula ? element("dd", { class: "with" }, formula) : null);
  const list = (...rows) => element("dl", {}, ...rows.filter(Boolean));
  const card = (heading, note, picture, key, ...body) =>
    element("section", { class: "card" }, element("h3", {}, heading), note ? element("p", { class: "told" }, note) : null, picture, key, ...body);
  const space = () => element("div", { class: "picture-place" });
  const fits = (need, room) => {
    const yes = atMost(need, [room, 1n]);
    const spare = yes ? less([room, 1n], need) : less(need, [room, 1n]);
    return element("span", { class: yes ? "yes" : "no" }, yes ? "fits, " : "does not fit, ", bytes(spare), yes ? " left" : " too much");
  };
  const verdict = (now) => {
    const gap = now.found.missed[0];
    const size = gap < 0n ? -gap : gap;
    return gap === 0n ? "none" : `${short(ratio([100n * size, now.found.parameters[0]]), 3)} % too ${gap > 0n ? "low" : "high"}`;
  };

  const partsOf = ({ found }, prefix, order) => order.map((name, index) => ({ name, value: Number(found[`${prefix} ${name}`][0]), fill: colour(index), text: grouped(found[`${prefix} ${name}`][0]) }));
  const keyOf = (order) => draw.key(order.map((name, index) => [name, colour(index)]));
  const pair = (now, pinned, made) => [made(now, false), ...(pinned ? [{ ...made(pinned, true), faint: true }] : [])];

  // ---------------------------------------------------------------- parameters
  const parameterCard = (now, pinned) => {
    const { found, state } = now;
    const [N] = found.parameters;
    const biggest = partsOf(now, "part", parts).reduce((a, b) => (b.value > a.value ? b : a));
    const picture = space();
    const values = { ...state.sizes };
    const made = (one, before) => ({ label: before ? `pinned: ${one.state.label}` : "parameters by part", text: large(one.found.parameters[0]), parts: partsOf(one, "part", parts) });
    const card_ = card("Parameters", `${biggest.name[0].toUpperCase()}${biggest.name.slice(1)} has ${short(100 * share(biggest.value, N), 3)} % of all parameters.`, picture, keyOf(parts), list(
      row("exact", element("strong", { class: "exact-count", title: String(N) }, grouped(N)), `= ${filled(structure(state.model).texts.parameters, values)}`, against(found.parameters, pinned?.found.parameters, ([n]) => grouped(n))),
      found.active[0] !== N && row("active for a token", grouped(found.active[0]), `= ${filled(structure(state.model).texts.active, values)}`),
    ));
    return [card_, () => draw.bars(picture, `Parameters by part: ${partsOf(now, "part", parts).map((p) => `${p.name} ${p.text}`).join(", ")}`, pair(now, pinned, made))];
  };
  const ruleCard = (now, pinned) => {
    const { found, state } = now;
    const [N] = found.parameters;
    const picture = space();
    const gap = found.missed[0];
    let at = Number(found.rule[0]);
    const steps = [{ label: "the rule 12Ld² + Vd", text: large(found.rule[0]), from: 0, to: at, fill: "var(--series-8)" }];
    for (const name of parts) {
      const [change] = found[`gap ${name}`];
      if (change === 0n) continue;
      const label = { attention: "attention other than 4d² a layer", "feed-forward": "feed-forward other than 8d² a layer", head: "a separate output head", embeddings: "embeddings other than Vd" }[name] ?? "norms, biases of norms, routers";
      steps.push({ label, text: percent(share(change, N)), from: at, to: at + Number(change), fill: change > 0n ? "var(--series-6)" : "var(--series-2)" });
      at += Number(change);
    }
    steps.push({ label: "the exact count", text: large(N), from: 0, to: Number(N), fill: "var(--series-1)" });
    const magnitude = gap < 0n ? -gap : gap;
    const gaps = parts.map((name) => found[`gap ${name}`][0]);
    const opposite = gaps.some((one) => one > 0n) && gaps.some((one) => one < 0n);
    const made = card("The rule’s error", gap === 0n ? "The rule 12Ld² + Vd is exact here." : `The rule 12Ld² + Vd is ${verdict(now)}.${opposite ? " Errors of opposite sign partly cancel." : ""}`, picture, null, list(
      row("12Ld² + Vd", grouped(found.rule[0]), `= ${filled("12·L·d² + V·d", state.sizes)}`),
      row("the rule’s error", element("span", { class: "rule-error" }, verdict(now), element("small", {}, `${grouped(magnitude)} parameters`)), `= (${grouped(N)} − ${grouped(found.rule[0])}) / ${grouped(N)}`,
        pinned && element("small", { class: "pinned" }, `pinned: ${verdict(pinned)}`)),
    ));
    return [made, () => draw.waterfall(picture, `From the rule to the exact count: ${steps.map((s) => `${s.label} ${s.text}`).join(", ")}`, steps)];
  };

  // ---------------------------------------------------------------- memory
  const METHODS = [["eager", "all scores kept"], ["fused", "fused attention"], ["checkpointed", "each layer checkpointed"]];
  const statesOf = ({ found }) => Object.keys(found).filter((name) => name.startsWith("state_share ")).map((name) => [name.slice(12), found[name]]);
  const memoryRows = (now) => {
    const { found, state } = now;
    const number = (fraction) => ratio(fraction);
    const part = (name, fraction, fill) => ({ name, value: number(fraction), fill, text: bytesText(fraction) });
    const held = statesOf(now).filter(([item]) => item !== "step").map(([item, size], index) => part(named(item), size, colour(index ? index + 1 : 0)));
    const bar = (label, list) => ({ label, parts: list, text: bytesText(list.reduce((sum, one) => add(sum, one.exact), [0n, 1n])) });
    const exact = (one, fraction) => ({ ...one, exact: fraction });
    const shares = statesOf(now).filter(([item]) => item !== "step");
    return [
      bar("to run it: weights and cache", [exact(part("weights", found.weights, colour(0)), found.weights), exact(part("cache", found.cache, colour(1)), found.cache)]),
      ...METHODS.map(([method, said]) => bar(`to train it, ${said}`, [
        ...held.map((one, index) => exact(one, shares[index][1])),
        exact(part("activations", found[`activations ${method}`], colour(7)), found[`activations ${method}`]),
      ])),
    ];
  };
  const memoryCard = (now, pinned) => {
    const { found, state } = now;
    const picture = space();
    const rows = memoryRows(now);
    const roomText = `${digits(state.room, 9)} GB`;
    const plural = many(state.G, "device");
    const stage = recipes[state.recipe];
    const held = !stage ? "each device holds all of it, because this recipe divides nothing (no ZeRO stage)"
      : state.G === 1n ? "one device holds all of it" : `on each of ${plural}, divided by ZeRO stage ${stage}`;
    const [above, below] = dtypes[state.dtype];
    const items = statesOf(now).filter(([item]) => item !== "step");
    const experts = state.sizes.E ? `, all ${grouped(state.sizes.E)} experts: all are stored, a token uses ${grouped(state.sizes.k)}` : "";
    const b = short(share(found.cache[0], (found.cache[1] * 1n) * numbersCached(now)), 5);
    const run = add(found.weights, found.cache);
    const trained = METHODS.map(([method]) => add(found.state_share, found[`activations ${method}`]));
    const fitting = METHODS.filter((_, index) => atMost(trained[index], [state.room, 1n])).map(([, said]) => said);
    const note = `Weights and cache ${atMost(run, [state.room, 1n]) ? "fit" : "do not fit"} on one device. Training ${fitting.length ? `fits with ${fitting[0]}` : `does not: not with ${METHODS.map(([, said]) => said).join(", nor with ")}`}.`;
    const seen = new Map([["weights", colour(0)], ["cache", colour(1)]]);
    for (const one of rows.slice(1).flatMap((bar) => bar.parts)) seen.set(one.name, one.fill);
    const made = card("Memory of a device", note, picture, draw.key([...seen]), list(
      row(`${digits(state.M, 9)} GB minus ${digits(state.P, 13)} % reserve: ${roomText}, or`, bytes([state.room, 1n])),
      row(`weights, ${state.dtype}${experts}`, bytes(found.weights), `= ${grouped(found.parameters[0])} × ${below === 1 ? above : `${above}/${below}`} bytes`, against(found.weights, pinned?.found.weights, bytesText)),
      row(`cache, ${state.cache}, ${grouped(state.B)} × ${grouped(state.T)} tokens`, bytes(found.cache), `= ${filled(structure(state.model).texts.cache, { ...state.sizes, B: state.B, T: state.T, b })} bytes`, against(found.cache, pinned?.found.cache, bytesText)),
      row(`weights and cache in ${roomText} of one device`, fits(run, state.room)),
      row(`training state, ${state.recipe}`, bytes(found.state_total), null, against(found.state_total, pinned?.found.state_total, bytesText)),
      row(held, bytes(found.state_share), `= ${items.map(([item, size]) => `${named(item)} ${bytesText(size)}`).join(" + ")}`),
      row(`training state in ${roomText} of a device, without activations`, fits(found.state_share, state.room)),
      ...METHODS.map(([method, said], index) => row(`activations in bf16 of ${grouped(state.B)} × ${grouped(state.T)} tokens per device, ${said}`, bytes(found[`activations ${method}`]), `of which logits and loss ${bytesText(found["activations logits"])}; with the state ${bytesText(trained[index])}`)),
    ));
    const limit = { value: Number(state.room), label: `${roomText} may be filled` };
    return [made, () => draw.bars(picture, `Memory against ${roomText}: ${rows.map((r) => `${r.label} ${r.text}`).join(", ")}`, rows, { limit })];
  };
  // Numbers that the cache holds: its bytes where each takes one.
  const numbersCached = ({ state }) => one(state, "cache", { b_above: 1n, b_below: 1n, b_group: 1n, b_constants: 0n })[0];

  // ---------------------------------------------------------------- work
  const lengths = Array.from({ length: 25 }, (_, index) => 2n ** BigInt(Math.floor(index / 2) + 7) * (index % 2 ? 3n : 2n) / 2n);
  const PAIRS = work[1];
  const shareAt = (state, T) => {
    const F = (name) => one(state, name, { B: 1n, T })[0];
    return 100 * share(F(`work ${PAIRS}`), F("prefill"));
  };
  // The first length, exactly, at which they take half of a forward pass; nothing if they do not within the picture.
  const halfway = (state) => {
    const half = (T) => 2n * one(state, `work ${PAIRS}`, { B: 1n, T })[0] >= one(state, "prefill", { B: 1n, T })[0];
    const index = lengths.findIndex(half);
    return index < 0 ? null : least(index ? lengths[index - 1] : 1n, lengths[index], half);
  };
  const workCard = (now, pinned) => {
    const { found, state } = now;
    const [bar, curve] = [space(), space()];
    const own = 100 * share(found[`work ${PAIRS}`][0], found.prefill[0]);
    const half = halfway(state);
    const note = `Scores and weighted values take ${short(own, 3)} % of a forward pass at ${grouped(state.T)} tokens${half ? `, and at least half from ${grouped(half)} tokens on` : ""}.`;
    const values = { ...state.sizes, B: state.B, T: state.T };
    const made = card("Work", note, bar, keyOf(work), curve, list(
      row(`forward, ${grouped(state.B)} × ${grouped(state.T)} tokens`, node(found.prefill, "FLOP"), `= ${filled(structure(state.model).texts.prefill, values)}`, against(found.prefill, pinned?.found.prefill, (f) => text(f, 4))),
      row("decoding one token per sequence", node(found.decode, "FLOP"), null, against(found.decode, pinned?.found.decode, (f) => text(f, 4))),
    ));
    const bars = (one, before) => ({ label: before ? `pinned: ${one.state.label}` : "FLOPs of a forward pass by part", text: `${text(one.found.prefill, 4)} FLOP`, parts: partsOf(one, "work", work) });
    const line = ({ state: setting }, extra) => ({ points: lengths.map((T) => [Number(T), shareAt(setting, T)]), fill: colour(1), ...extra });
    return [made, () => {
      draw.bars(bar, `Forward pass by part: ${partsOf(now, "work", work).map((p) => `${p.name} ${short(100 * share(p.value, found.prefill[0]), 3)} %`).join(", ")}`, pair(now, pinned, bars));
      draw.lines(curve, `Share of scores and weighted values against the length: ${short(own, 3)} % at ${grouped(state.T)} tokens`, [line(now, {}), ...(pinned ? [line(pinned, { dashed: true, faint: true })] : [])],
        { logX: true, low: 0, high: 100, x: "tokens", y: "% of the forward pass that is scores and values", marks: [{ x: Number(state.T), y: own, text: `${short(own, 3)} %`, fill: colour(1) }] });
    }];
  };

  // ---------------------------------------------------------------- training
  const timeCard = (now, pinned) => {
    const { found, state } = now;
    const picture = space();
    const days = (one, name) => ratio(day(one.found[`seconds_${name}`]));
    const plural = many(state.G, "device");
    const counts = Array.from({ length: 19 }, (_, index) => 2 ** index);
    const line = (one, name, extra) => ({ points: counts.map((G) => [G, (days(one, name) * Number(one.state.G)) / G]), fill: colour(0), ...extra });
    const half = ratio([found.train_rule[0] * found.train_exact[1], found.train_rule[1] * found.train_exact[0]]);
    const of = (name) => [`${text(found[`train_${name}`], 4)}`, ` FLOP / (${grouped(state.G)} × ${text([state.R, 1n], 4)} FLOP/s) / 86,400`].join("");
    const shown = (fraction) => `${text(fraction, 4)} days`;
    const made = card(`Time to train it on ${plural}`, `${text(day(found.seconds_exact), 3)} days by all matrix products at ${grouped(state.T)} tokens a sequence. 6ND is ${short(100 * Math.abs(half - 1), 3)} % too ${half < 1 ? "low" : "high"}.`, picture,
      draw.key([["by all matrix products", colour(0)], ...(pinned ? [["pinned (dashed)", colour(0)]] : [])]), list(
        row("training, 6ND with N = 12Ld² + Vd", node(found.train_rough, "FLOP", 4), `= 6 × ${grouped(found.rule[0])} × ${grouped(state.D)}`),
        row("training, 6ND with the exact active N", node(found.train_rule, "FLOP", 4), `= 6 × ${grouped(found.active[0])} × ${grouped(state.D)}`),
        row(`training, all matrix products at ${grouped(state.T)} tokens a sequence`, node(found.train_exact, "FLOP", 4), `= ${grouped(found.train[0])} FLOP a sequence × ${grouped(state.D)} / ${grouped(state.T)}`, against(found.train_exact, pinned?.found.train_exact, (f) => text(f, 4))),
        row("6ND (exact N) / all matrix products", text([found.train_rule[0] * found.train_exact[1], found.train_rule[1] * found.train_exact[0]], 4)),
        row("days by 6ND with N = 12Ld² + Vd", node(day(found.seconds_rough), "days", 4), `= ${of("rough")}`),
        row("days by 6ND with the exact N", node(day(found.seconds_rule), "days", 4), `= ${of("rule")}`),
        row("days by all matrix products", node(day(found.seconds_exact), "days", 4), `= ${of("exact")}`, against(day(found.seconds_exact), pinned && day(pinned.found.seconds_exact), shown)),
      ));
    return [made, () => draw.lines(picture, `Days against devices: ${text(day(found.seconds_exact), 3)} days on ${plural}`, [line(now, "exact", {}), ...(pinned ? [line(pinned, "exact", { dashed: true, faint: true })] : [])],
      { logX: true, logY: true, x: "devices", y: "days", marks: [{ x: Number(state.G), y: days(now, "exact"), text: `${text(day(found.seconds_exact), 3)} days`, fill: colour(0) }] })];
  };

  // ---------------------------------------------------------------- backwards
  const backwardsCard = (now, pinned, { use }) => {
    const { state, answers } = now;
    const before = pinned?.answers;
    const none = (one) => (atMost(one.found.weights, [one.state.room, 1n]) ? "none, because not one fits beside the weights" : "none, because the weights alone do not fit");
    const said = (one, answer, unit) => (answer == null ? "no limit, because a window bounds the cache" : answer === 0n ? none(one) : many(answer, unit));
    const ask = (name, symbol, label, unit, never) => {
      const answer = answers[name];
      const value = element("span", { class: `answer answer-${name}` }, never && answer == null ? never : said(now, answer, unit));
      if (answer && answer !== state[symbol]) {
        const button = element("button", { type: "button", "aria-label": `Use ${grouped(answer)} ${unit}s` }, "use");
        button.addEventListener("click", () => use(symbol, answer));
        value.append(" ", button);
      }
      return row(label, value, null, before && before[name] !== answer ? element("small", { class: "pinned" }, `pinned: ${never && before[name] == null ? never : said(pinned, before[name], unit)}`) : null);
    };
    const stage = recipes[state.recipe];
    const warned = answers.context > state.limit ? ` The model’s own context is ${grouped(state.limit)} tokens.` : "";
    return [card("Backwards: what fits", `In ${digits(state.room, 9)} GB of each device.${warned}`, null, null, list(
      ask("context", "T", `longest context of ${many(state.B, "sequence")}, beside the weights`, "token"),
      ask("batch", "B", `most sequences of ${grouped(state.T)} tokens, beside the weights`, "sequence"),
      ask("devices", "G", `fewest devices for the training state, ${state.recipe}${stage ? "" : ", divided by ZeRO stage 3"}`, "device", "no number is enough, because what is never divided does not fit"),
    )), () => {}];
  };

  const CARDS = [parameterCard, ruleCard, memoryCard, backwardsCard, workCard, timeCard];

  /** Everything about a setting into `host`; pictures are drawn once all places have their width. */
  const show = (host, now, pinned, actions) => {
    const made = CARDS.map((card) => card(now, pinned, actions));
    const focused = host.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    host.replaceChildren(...made.map(([card]) => card));
    for (const [, drawn] of made) drawn();
    if (focused) [...host.querySelectorAll("button")].find((one) => one.getAttribute("aria-label") === focused)?.focus();
  };
  /** The figures that stay in sight while a slider moves. */
  const glance = (now, pinned) => {
    const said = (one) => [
      ["parameters", large(one.found.parameters[0])], ["12Ld² + Vd", verdict(one) === "none" ? "exact" : verdict(one)],
      ["weights + cache", bytesText(add(one.found.weights, one.found.cache))], ["training state", bytesText(one.found.state_share)],
      ["to train", `${text(day(one.found.seconds_exact), 3)} days`],
    ];
    const before = pinned && said(pinned);
    return said(now).map(([name, value], index) => element("span", {}, element("span", { class: "of" }, name), ` ${value}`, before && before[index][1] !== value ? element("span", { class: "of" }, ` (${before[index][1]})`) : null));
  };

  return { show, glance };
})();
