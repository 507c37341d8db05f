/* What if: a model, its sizes changed, and what it costs. */
(() => {
  const { data, element, grouped } = elements;
  const { digits, bytesText } = amounts;
  const { SIZES, evaluate, backwards } = quantities;
  const { KNOBS, WORDS, WHOLE, DECIMALS, parse, wanted, stops, follow, problems, remarks, knob } = controls;
  const form = document.getElementById("calculator");
  if (!form) return;

  const { models, recipes, dtypes, devices, start } = data.whatif;
  const names = Object.keys(models).filter((name) => !models[name].file);
  const firstModel = names.includes(start.model) ? start.model : names[0];
  const KEPT = ["B", "T", "D", "G", "R", "M", "P", "dtype", "cache", "recipe"];  // whatever the model
  const state = {};  // the last setting that holds: what every figure shows
  let draft = {};  // what the fields say
  let ignored = [];  // what the address asked for in vain
  let pinned = null;
  const mistyped = new Map();  // knob → message
  const place = (name) => form.querySelector(`.${name}`);

  const own = (name) => {
    const { sizes, context, length, run } = models[name];
    const out = {
      B: 1n, T: BigInt(length), D: BigInt(start.tokens ?? 15e12), G: BigInt(start.devices), R: BigInt(start.flops_per_second_per_device ?? 4e14),
      M: BigInt(start.device.memory_bytes), P: BigInt(Math.round(start.device.reserve * 1e15)), limit: BigInt(context),
      dtype: "bf16", cache: "bf16", recipe: start.recipe,
    };
    for (const [key, value] of Object.entries({ ...sizes, ...run })) out[key] = BigInt(value);
    return out;
  };

  // ---------------------------------------------------------------- from a setting to figures
  const settle = (typing) => {
    const model = models[draft.model];
    const wrong = new Map(mistyped);
    for (const { names: concerned, text } of problems(draft, model)) {
      const at = concerned.includes(typing) ? typing : concerned.find((name) => name in draft);
      if (!wrong.has(at)) wrong.set(at, text);
    }
    const stale = wrong.size > 0;
    form.classList.toggle("stale", stale);
    const notes = stale ? {} : remarks(draft, model);
    for (const [name, { say }] of Object.entries(knobs)) say(wrong.get(name) ?? notes[name], wrong.has(name));
    place("stale-note").textContent = stale ? "These are the results of the last setting that was possible." : "";
    if (stale) return;
    for (const key of Object.keys(state)) delete state[key];
    Object.assign(state, draft);
    update();
  };
  const record = () => {
    const sizes = Object.fromEntries(SIZES.filter((name) => name in state).map((name) => [name, state[name]]));
    const room = (state.M * (WHOLE - state.P)) / WHOLE;
    const setting = { ...state, sizes, room, label: models[state.model].label };
    const found = evaluate(setting);
    return { state: setting, found, answers: backwards(setting, found, room) };
  };
  const update = () => {
    if (!draw.isKnown(place("results"))) return;
    const now = record();
    place("problems").replaceChildren(...ignored.map((line) => element("p", { class: "problem" }, line)));
    place("glance").replaceChildren(...results.glance(now, pinned));
    results.show(place("results"), now, pinned, { use });
  };
  globalThis.transformerLedger.redraw = () => {
    const begin = performance.now();
    update();
    return performance.now() - begin;
  };

  // ---------------------------------------------------------------- from controls to a setting
  const showAll = (except) => {
    const model = models[draft.model];
    for (const [name, { row, put }] of Object.entries(knobs)) {
      row.hidden = !(name in draft);
      if (name in draft && !mistyped.has(name)) put(draft[name], name === except ? null : stops(name, draft, model), name === except);
    }
    for (const [name, box] of Object.entries(selects)) if (name in draft) box.value = draft[name];
    selects.device.value = Object.keys(devices).find((name) => BigInt(devices[name][0]) === draft.M && BigInt(Math.round(devices[name][1] * 1e15)) === draft.P) ?? "";
  };
  const load = (model, kept, changes = {}) => {
    mistyped.clear();
    draft = { model, ...own(model), ...kept };
    ignored = [];
    for (const [key, text] of Object.entries(changes)) {
      const name = Object.hasOwn(WORDS, key) ? WORDS[key] : key;
      if (Object.hasOwn(selects, name)) {
        if ([...selects[name].options].some((option) => option.value === text)) draft[name] = text;
        else ignored.push(`The address: no ${key} named ${text}.`);
      } else if (name !== "limit" && !Object.hasOwn(KNOBS, name)) ignored.push(`The address: unknown key ${key}.`);
      else if (!(name in draft)) ignored.push(`The address: ${models[model].label} has no ${key}.`);
      else if (parse(name, text) == null) ignored.push(`The address: ${key} ${text} is not ${wanted(name)}.`);
      else draft[name] = parse(name, text);
    }
    if ("heads" in changes || "h" in changes || "d_model" in changes || "d" in changes) {
      if (!("head_dim" in changes) && !("d_h" in changes)) draft = follow("d", own(model), draft, models[model], false);
    }
    showAll();
    settle();
    if (!form.classList.contains("stale")) return;
    ignored.push(...problems(draft, models[model]).map(({ text }) => `The address: ${text}`));
    draft = { model, ...own(model), ...kept };
    showAll();
    settle();
  };
  const changed = (name, value, snap, text) => {
    if (value == null) {
      mistyped.set(name, `${text.trim() || "Nothing"} is not ${wanted(name)}.`);
      return settle(name);
    }
    mistyped.delete(name);
    ignored = [];
    draft = follow(name, draft, { ...draft, [name]: value }, models[draft.model], snap);
    showAll(name);
    settle(name);
    remember();
  };
  const use = (name, value) => changed(name, value, true) ?? showAll();
  const chosen = (name, value) => {
    if (name === "model") {
      const kept = Object.fromEntries(KEPT.map((key) => [key, draft[key]]));
      load(value, kept);
    } else if (name === "device") {
      if (value) draft = { ...draft, M: BigInt(devices[value][0]), P: BigInt(Math.round(devices[value][1] * 1e15)) };
      showAll();
      settle();
    } else {
      draft = { ...draft, [name]: value };
      settle();
    }
    remember();
  };

  const knobs = Object.fromEntries(Object.keys(KNOBS).map((name) => [name, knob(name, changed)]));
  const selects = {};
  const select = (name, label, options) => {
    const box = element("select", { id: `knob-${name}` }, ...options.map(([value, text, hidden]) => element("option", { value, hidden }, text)));
    box.addEventListener("change", () => chosen(name, box.value));
    selects[name] = box;
    return element("div", { class: "choice" }, element("label", { for: `knob-${name}` }, label), box);
  };
  const rows = (...list) => list.map((name) => knobs[name].row);
  const types = Object.keys(dtypes).map((name) => [name, name]);
  const group = (legend, ...rows) => element("fieldset", {}, element("legend", {}, legend), ...rows);
  const button = (text, action) => {
    const made = element("button", { type: "button" }, text);
    made.addEventListener("click", () => action(made));
    return made;
  };

  // ---------------------------------------------------------------- a config.json
  const file = element("textarea", { id: "config-json", rows: "3", spellcheck: "false", placeholder: "{\"model_type\": \"llama\", …}", "aria-describedby": "config-says" });
  const fileSays = element("p", { class: "says", id: "config-says", role: "status" });
  const readFile = (text) => {
    if (!text.trim()) return void (fileSays.textContent = "");
    try {
      const { model, sizes, limit } = configfile.read(text);
      const kept = Object.fromEntries(KEPT.map((key) => [key, draft[key]]));
      const all = Object.fromEntries(Object.entries({ ...sizes, limit }).map(([key, value]) => [key, BigInt(value)]));
      load(model, { ...kept, ...all });
      remember();
      fileSays.classList.remove("wrong");
      fileSays.textContent = `Read: ${models[model].label.replace(/^a config.json /, "")}. Nothing leaves this page.`;
    } catch (error) {
      fileSays.classList.add("wrong");
      fileSays.textContent = error.message;
    }
  };
  file.addEventListener("input", () => readFile(file.value));
  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", async (event) => {
    event.preventDefault();
    const [dropped] = event.dataTransfer.files;
    file.value = dropped ? await dropped.text() : event.dataTransfer.getData("text");
    file.closest("details").open = true;
    readFile(file.value);
  });

  const pin = button("Pin this setting", () => {
    pinned = record();
    unpin.hidden = false;
    update();
  });
  const unpin = button("Unpin", () => {
    pinned = null;
    unpin.hidden = true;
    update();
    pin.focus();
  });
  unpin.hidden = true;
  const reset = button("Reset", () => {
    load(draft.model, {});
    remember();
  });
  const share = button("Copy link", async () => {
    remember();
    try {
      await navigator.clipboard.writeText(location.href);
      share.textContent = "Copied";
    } catch {
      share.textContent = "The address bar has it";
    }
    setTimeout(() => (share.textContent = "Copy link"), 1500);
  });
  place("controls").append(
    select("model", "start from", Object.entries(models).map(([name, { label, file: hidden }]) => [name, label, hidden])),
    element("details", { class: "file" }, element("summary", {}, "… or from a config.json"), element("label", { for: "config-json" }, "Paste the file here, or drop it"), file, fileSays),
    element("div", { class: "tools" }, pin, unpin, reset, share),
    group("Architecture", ...rows(...SIZES)),
    group("Run", ...rows("B", "T"), select("dtype", "weights", types), select("cache", "cache", types)),
    group("Device", select("device", "device", [["", "another"], ...Object.keys(devices).map((name) => [name, name])]), ...rows("M", "P")),
    group("Training", ...rows("D", "G", "R"), select("recipe", "recipe", Object.keys(recipes).map((name) => [name, name]))),
  );

  // ---------------------------------------------------------------- the address
  const remember = () => {
    const usual = own(state.model);
    const changes = Object.entries(state).filter(([name, value]) => name !== "model" && value !== usual[name]);
    const query = new URLSearchParams([["model", state.model], ...changes.map(([name, value]) => [name, typeof value === "bigint" ? digits(value, DECIMALS[name] ?? 0) : value])]);
    history.replaceState(null, "", `#what-if?${query}`);
  };
  const recall = () => {
    const [id, query] = location.hash.slice(1).split("?");
    if (id !== "what-if" || !query) return false;
    const { model, ...rest } = Object.fromEntries(new URLSearchParams(query));
    const known = model === undefined || Object.hasOwn(models, model);
    load(known ? model ?? firstModel : firstModel, {}, rest);
    if (!known) {
      ignored.unshift(`The address: no model named ${model}; this is ${models[firstModel].label}.`);
      update();
    }
    return true;
  };

  form.addEventListener("submit", (event) => event.preventDefault());
  const keys = Object.entries(WORDS).map(([word, symbol]) => `${word} (${symbol})`).join(", ");
  form.after(element("details", { class: "note keys" }, element("summary", {}, "A setting in the address"), element("p", {}, `#what-if?model=${firstModel}&batch=32&context=8192 opens that setting. Keys: model, cache, recipe, ${keys}. Each may be written as its name or as the word in brackets. Memory is in GB, reserve in %.`)));
  form.hidden = false;
  draw.at(place("results"), update);
  addEventListener("hashchange", recall);
  if (!recall()) load(firstModel, {});
})();
