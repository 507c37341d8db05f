/* The calculator's controls: which values a slider stops at, what may stand in a field, and which settings contradict. */
const controls = (() => {
  const { element, grouped } = elements;
  const { read, digits, brief } = amounts;

  // label, unit, decimals of the field, decimals of the address
  const KNOBS = {
    L: ["layers L", ""], d: ["width d", ""], h: ["heads h", ""], h_kv: ["K/V heads", ""], d_h: ["head width", ""], f: ["feed-forward width", ""],
    V: ["vocabulary", "tokens"], C: ["learned positions", "rows"], w: ["window", "tokens"], E: ["experts", ""], k: ["experts per token", ""],
    B: ["batch", "sequences"], T: ["context", "tokens"], D: ["training tokens", ""], G: ["devices", ""], R: ["sustained rate", "FLOP/s per device"],
    M: ["memory of a device", "GB"], P: ["reserve", "% left free"],
  };
  const DECIMALS = { M: 9, P: 13 };
  const WHOLE = 10n ** 15n;  // 100 %
  const WORDS = {
    layers: "L", d_model: "d", heads: "h", kv_heads: "h_kv", head_dim: "d_h", d_ff: "f", vocabulary: "V", position_rows: "C", window: "w",
    experts: "E", experts_per_token: "k", batch: "B", context: "T", tokens: "D", devices: "G", rate: "R", memory: "M", reserve: "P",
    weights: "dtype", model_context: "limit",
  };

  const parse = (name, text) => {
    const value = read(text, DECIMALS[name] ?? 0);
    return value != null && (name === "P" ? value < WHOLE : value > 0n) ? value : null;
  };
  const shown = (name, value) => (name === "D" || name === "R" ? brief(value) : digits(value, DECIMALS[name] ?? 0));
  const wanted = (name) => (name === "P" ? "a percentage below 100" : name === "M" ? "a positive number, such as 80" : "a positive integer, such as 4096, 8k, 1e3 or 15T");

  // ---------------------------------------------------------------- values that a slider stops at
  const ladder = (low, high) => {  // eight to an octave
    const found = [];
    for (let octave = 1; octave <= high; octave *= 2) for (let step = 8; step < 16; step += 1) found.push(Math.round((octave * step) / 8));
    return [...new Set(found)].filter((value) => value >= low && value <= high);
  };
  const decades = (low, high) => {
    const found = [];
    for (let power = low; power <= high; power += 1) for (const step of [10n, 12n, 15n, 20n, 25n, 30n, 40n, 50n, 60n, 80n]) found.push((step * 10n ** BigInt(power)) / 10n);
    return found;
  };
  const counting = (low, high) => Array.from({ length: Math.max(0, high - low + 1) }, (_, i) => low + i);
  const divisors = (n) => counting(1, Math.min(n, 1024)).filter((value) => n % value === 0);
  const stepped = (values, step) => [...new Set(values.map((value) => Math.max(step, Math.round(value / step) * step)))];
  const gcd = (a, b) => (b ? gcd(b, a % b) : a);
  const followsWidth = (state, model) => model.follows && state.d === state.h * state.d_h;

  /** Ascending values that the slider of a knob stops at, the present one among them; each is a setting that holds. */
  const stops = (name, state, model) => {
    const [d, h] = [Number(state.d), Number(state.h)];
    const follows = followsWidth(state, model);
    const even = model.rotary ? 2 : 1;
    const E = Number(state.E ?? 0);
    const made = {
      L: () => counting(model.others + 1, Math.max(160, model.others + 1)),
      d: () => stepped(ladder(16, 32768), follows ? h * even : 16),
      h: () => (follows ? divisors(d).filter((n) => (d / n) % even === 0) : stepped(ladder(1, 256), 1)),
      h_kv: () => divisors(h),
      d_h: () => stepped(ladder(2, 1024), even),
      f: () => stepped(ladder(16, 131072), 8),
      V: () => ladder(16, 1048576), C: () => ladder(1, 1048576), w: () => ladder(1, 1048576),
      E: () => ladder(1, 1024), k: () => counting(1, Math.min(E, 128)),
      B: () => ladder(1, 4096), T: () => ladder(1, 1048576), G: () => ladder(1, 131072),
      D: () => decades(6, 16), R: () => decades(10, 15),
      M: () => [4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 180, 192, 256, 288, 384, 512, 768, 1024].map((n) => BigInt(n) * 10n ** 9n),
      P: () => counting(0, 90).map((n) => BigInt(n) * 10n ** 13n),
    }[name]().map(BigInt);
    if (!made.includes(state[name])) made.push(state[name]);
    return made.sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  };

  /** What a slider, or a typed number, brings along: heads as wide as the width allows, K/V heads that divide them. */
  const follow = (name, before, after, model, snap) => {
    const next = { ...after };
    if ((name === "d" || name === "h") && followsWidth(before, model) && next.d % next.h === 0n) next.d_h = next.d / next.h;
    if (snap && name === "h" && "h_kv" in next) next.h_kv = BigInt(gcd(Number(next.h), Number(next.h_kv)));
    if (snap && name === "E" && next.k > next.E) next.k = next.E;
    return next;
  };

  /** Contradictions: {names: the knobs concerned, text}. */
  const problems = (state, model) => {
    const found = [];
    const say = (bad, names, text) => bad && found.push({ names, text });
    if ("h_kv" in state) say(state.h % state.h_kv !== 0n, ["h_kv", "h"], `${state.h_kv} K/V heads do not divide ${state.h} heads.`);
    if (model.rotary && "d_h" in state) say(state.d_h % 2n !== 0n, ["d_h", "h", "d"], `Rotary positions pair the components, so the head width ${state.d_h} must be even.`);
    if ("E" in state) say(state.k > state.E, ["k", "E"], `${state.k} experts a token are more than all ${state.E}.`);
    say(state.L <= BigInt(model.others), ["L"], `${model.others} layers of this model are of other kinds; it needs more layers than that.`);
    return found;
  };
  /** What holds, but deserves a word at its knob. */
  const remarks = (state, model) => {
    const found = {};
    if (state.T > state.limit) found.T = `Longer than the model’s own context, ${grouped(state.limit)} tokens: it was made for no more.`;
    if ("C" in state && state.T > state.C) found.T = `Longer than the ${grouped(state.C)} learned positions: the model has none for the rest.`;
    if (model.follows && state.d !== state.h * state.d_h) found.d_h = `${state.h} heads of ${state.d_h} fill ${grouped(state.h * state.d_h)} components, not the width ${grouped(state.d)}.`;
    return found;
  };

  /** One knob: label, field, slider and the place of its message. `changed(name, value, snap)`; `value` null: no number. */
  const knob = (name, changed) => {
    const [label, unit] = KNOBS[name];
    const field = element("input", { type: "text", id: `knob-${name}`, inputmode: "text", autocomplete: "off", spellcheck: "false", "aria-describedby": `says-${name}` });
    const range = element("input", { type: "range", min: "0", step: "1", "aria-label": `${label}, slider` });
    const says = element("p", { class: "says", id: `says-${name}` });
    const row = element("div", { class: "knob", "data-knob": name },
      element("label", { for: `knob-${name}` }, label, unit ? element("span", { class: "unit" }, ` ${unit}`) : null), field, range, says);
    let values = [];
    const place = (value) => {
      const at = values.indexOf(value);
      if (at >= 0) range.value = String(at);
      range.setAttribute("aria-valuetext", `${grouped(shown(name, value))} ${unit}`.trim());
    };
    field.addEventListener("input", () => changed(name, parse(name, field.value), false, field.value));
    field.addEventListener("change", () => parse(name, field.value) != null && !field.hasAttribute("aria-invalid") && (field.value = shown(name, parse(name, field.value))));
    const slide = () => {
      const value = values[Number(range.value)];
      field.value = shown(name, value);
      changed(name, value, true);
    };
    range.addEventListener("input", slide);
    field.addEventListener("keydown", (event) => {
      const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      range.value = String(Number(range.value) + step);
      slide();
    });
    return {
      row,
      /** Shows a value, in the field unless someone types there, and on the slider with its stops. */
      put: (value, list, typing) => {
        if (!typing) field.value = shown(name, value);
        if (list) {
          values = list;
          range.max = String(values.length - 1);
        }
        place(value);
      },
      say: (text, wrong) => {
        says.textContent = text ?? "";
        says.classList.toggle("wrong", Boolean(wrong));
        if (wrong) field.setAttribute("aria-invalid", "true");
        else field.removeAttribute("aria-invalid");
      },
    };
  };

  return { KNOBS, WORDS, WHOLE, DECIMALS, parse, shown, wanted, stops, follow, problems, remarks, knob };
})();
