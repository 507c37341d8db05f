/* A model's config.json, read here: families whose layers are all of one kind; anything else is refused by name. */
const configfile = (() => {
  const { data } = elements;
  const { families, same } = data.whatif;

  const LARGEST = 2 ** 31 - 1;
  const refuse = (message) => {
    throw new Error(message);
  };
  const has = (config, name) => config[name] != null;

  const size = (config, names, usual) => {
    const found = names.filter((name) => has(config, name));
    const values = new Set(found.map((name) => config[name]));
    if (values.size > 1) refuse(`${found.join(" and ")} are names of one size and have different values.`);
    if (!found.length) return usual;
    const [value] = values;
    if (!Number.isInteger(value) || value < 1 || value > LARGEST) refuse(`${found[0]}: ${JSON.stringify(value)} is not an integer from 1 to 2,147,483,647.`);
    return value;
  };
  const flag = (config, name, usual) => {
    if (!has(config, name)) return usual;
    return typeof config[name] === "boolean" ? config[name] : refuse(`${name}: ${JSON.stringify(config[name])} is neither true nor false.`);
  };

  const checked = (config, family) => {
    const [named] = [config.architectures ?? []].flat();
    if (named && !/^[A-Za-z0-9]+(ForCausalLM|LMHeadModel|ForConditionalGeneration)$/.test(named)) refuse(`architectures: ${JSON.stringify(named)} has no language head of transformers' own; size it with python -m transformer_ledger size.`);
    if (has(config, "draft_vocab_size")) refuse("draft_vocab_size: this is the draft head of another model, which is not sized.");
    for (const [name, only] of Object.entries(family.fixed)) {
      if (has(config, name) && config[name] !== only) refuse(`${name}: ${JSON.stringify(config[name])} is not counted here for ${config.model_type}; ${JSON.stringify(only)} is. The pipeline may read the file: put it into config.yaml.`);
    }
    for (const names of same) {
      const own = names.filter((name) => Object.values(family.keys).flat().includes(name));
      const other = names.find((name) => has(config, name) && !own.includes(name));
      if (own.length && other && !own.some((name) => has(config, name))) refuse(`${other} is not a key of ${config.model_type}, which has ${own.join(" or ")}.`);
    }
  };
  const windowOf = (config, family, layers) => {
    const window = family.window !== "all" ? null : "sliding_window" in config ? size(config, ["sliding_window"], null) : family.sliding_window;
    if (window === 1) refuse("sliding_window: 1 sees no other position; the least is 2.");
    const types = config.layer_types;
    const wanted = window == null ? "full_attention" : "sliding_attention";
    if (types != null && !(Array.isArray(types) && types.length === layers && types.every((type) => type === wanted))) refuse(`layer_types: layers of several kinds, or not ${layers}, are not read here. The pipeline may read the file: put it into config.yaml.`);
    return window;
  };
  const headsOf = (config, family, sizes) => {
    const { d, h } = sizes;
    if (family.divides && d % h) refuse(`num_attention_heads: ${h} does not divide the width ${d}.`);
    const many = !("kv_heads" in family);  // GPT-2: a key/value head for every query head
    const h_kv = many || (family.kv_heads == null && !has(config, "num_key_value_heads")) || config.num_key_value_heads === null ? h : size(config, ["num_key_value_heads"], family.kv_heads);
    const d_h = many ? null : size(config, ["head_dim"], family.head_dim);
    if (d_h == null && d % h) refuse(`num_attention_heads: ${h} does not divide the width ${d}, and there is no head_dim.`);
    if (h % h_kv) refuse(`num_key_value_heads: ${h_kv} does not divide the ${h} attention heads.`);
    return { h_kv, d_h: d_h ?? d / h };
  };

  /** {model, sizes, limit} of the text of a config.json; throws an Error that says what is wrong and what would be right. */
  const read = (text) => {
    let config;
    try {
      config = JSON.parse(text);
    } catch (error) {
      refuse(`This is not JSON: ${error.message}.`);
    }
    if (config === null || typeof config !== "object" || Array.isArray(config)) refuse("This is JSON, but not a mapping; a model's config.json begins with a brace.");
    if (config.text_config) refuse("This is a multimodal file; paste the text_config part alone, with its model_type.");
    const known = Object.keys(families).sort().join(", ");
    if (typeof config.model_type !== "string") refuse(`model_type is missing. Read here: ${known}.`);
    if (!Object.hasOwn(families, config.model_type)) refuse(`model_type ${JSON.stringify(config.model_type)} is not read here; these are: ${known}. The pipeline reads more: put the file into config.yaml.`);
    const family = families[config.model_type];
    checked(config, family);
    const tied = flag(config, "tie_word_embeddings", family.tied);
    const form = (windowed) => [config.model_type, ...(tied ? ["tied"] : []), ...(windowed ? ["window"] : [])].join(".");
    const usual = data.whatif.models[form(false)];
    const sizes = Object.fromEntries(Object.entries(family.keys).map(([symbol, names]) => [symbol, size(config, names, symbol === "limit" ? usual.context : usual.sizes[symbol])]));
    const window = windowOf(config, family, sizes.L);
    Object.assign(sizes, headsOf(config, family, sizes));
    if (window != null) sizes.w = window;
    if (family.inner) sizes.f = size(config, [family.inner], 4 * sizes.d);
    if (sizes.k > sizes.E) refuse(`num_experts_per_tok: ${sizes.k} is above the ${sizes.E} experts.`);
    if (usual.rotary && sizes.d_h % 2) refuse(`head_dim: ${sizes.d_h} is odd; rotary positions pair the components.`);
    const { limit = sizes.C, ...rest } = sizes;
    return { model: form(window != null), sizes: rest, limit };
  };

  return { read };
})();
globalThis.transformerLedger.readConfig = configfile.read;
