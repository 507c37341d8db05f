/* Figures of claims to touch: each computes what it shows, so that what the claim says can be seen to hold, or to break. */
(() => {
  const { element, short, grouped } = elements;
  const { colour } = draw;

  // ---------------------------------------------------------------- numbers
  const drawn = (seed) => {  // mulberry32, then pairs of normal deviates (Box and Muller)
    let a = seed >>> 0;
    const uniform = () => {
      a = (a + 0x6d2b79f5) | 0;
      let t = Math.imul(a ^ (a >>> 15), 1 | a);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
    return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  };
  const vector = (normal, n) => Array.from({ length: n }, normal);
  const matrix = (normal, rows, columns, scale = 1) => Array.from({ length: rows }, () => vector(normal, columns).map((x) => x * scale));
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const times = (row, m) => m[0].map((_, j) => row.reduce((sum, x, i) => sum + x * m[i][j], 0));
  const plus = (a, b) => a.map((x, i) => x + b[i]);
  const softmax = (scores) => {
    const most = Math.max(...scores);
    const powers = scores.map((s) => Math.exp(s - most));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((p) => p / sum);
  };
  const furthest = (a, b) => Math.max(...a.map((x, i) => Math.abs(x - b[i])));
  const turned = (pairs, angle) => pairs.flatMap((_, i) => (i % 2 ? [] : [[pairs[i], pairs[i + 1]]])).flatMap(([x, y], i) => {
    const [c, s] = [Math.cos(angle / 10 ** i), Math.sin(angle / 10 ** i)];
    return [x * c - y * s, x * s + y * c];
  });
  const said = (value, digits = 3) => (Math.abs(value) < 1e-300 ? "0" : short(value, digits));

  // ---------------------------------------------------------------- what can be touched
  const frame = (host) => {
    const [buttons, touch, picture, words] = [element("div", { class: "buttons" }), element("div", { class: "touch" }), element("div", { class: "picture-place" }), element("p", { class: "said", "aria-live": "polite" })];
    host.append(buttons, touch, picture, words);
    let id = 0;
    const made = {
      picture,
      say: (...text) => words.replaceChildren(...text),
      facts: (values) => Object.assign(host.dataset, Object.fromEntries(Object.entries(values).map(([name, value]) => [name, String(value)]))),
      changed: () => {},
      slider: (label, min, max, value, read = String, step = 1) => {
        id += 1;
        const input = element("input", { type: "range", id: `play-${host.dataset.play}-${id}`, min, max, step, value });
        const shown = element("output", { for: input.id });
        const put = () => {
          shown.textContent = read(Number(input.value));
          input.setAttribute("aria-valuetext", shown.textContent);
        };
        input.addEventListener("input", () => {
          put();
          made.changed();
        });
        put();
        touch.append(element("label", { for: input.id }, label), input, shown);
        const get = () => Number(input.value);
        get.set = (next, most) => {
          if (most !== undefined) input.max = String(most);
          input.value = String(next);
          put();
        };
        return get;
      },
      tick: (label, on = false) => {
        const input = element("input", { type: "checkbox", checked: on });
        input.addEventListener("change", () => made.changed());
        buttons.append(element("label", {}, input, ` ${label}`));
        const get = () => input.checked;
        get.set = (next) => (input.checked = next);
        return get;
      },
      button: (label, action) => {
        const one = element("button", { type: "button" }, label);
        one.addEventListener("click", () => {
          action();
          made.changed();
        });
        buttons.append(one);
      },
    };
    return made;
  };

  // ---------------------------------------------------------------- A1: a one-hot row times a table
  const lookup = (play) => {
    const table = matrix(drawn(1), 6, 4).map((row) => row.map((x) => Math.round(10 * x) / 10 + 0));
    const at = play.slider("token", 0, 5, 2, (n) => `row ${n}`);
    const infinite = play.tick("put ∞ into row 4");
    return () => {
      const rows = table.map((row, r) => row.map((x, c) => (infinite() && r === 4 && c === 1 ? Infinity : x)));
      const hot = rows.map((_, r) => Number(r === at()));
      const product = times(hot, rows);
      const same = product.every((x, c) => Object.is(x, rows[at()][c]));
      const text = (x) => (Number.isNaN(x) ? "NaN" : x === Infinity ? "∞" : String(x).replace("-", "−"));
      const cells = rows.map((row, r) => [{ text: String(hot[r]), weight: 0.85 * hot[r], fill: colour(1) }, null, ...row.map((x) => ({ text: text(x), weight: r === at() ? 0.25 : 0 }))]);
      cells.push([null, null, ...product.map((x) => ({ text: text(x), ring: true }))]);
      draw.grid(play.picture, `One-hot row ${at()} times a table of 6 rows`, cells, { sides: [...rows.map((_, r) => `row ${r}`), "product"], tops: ["hot", "", "1", "2", "3", "4"] });
      play.facts({ same });
      play.say(same ? `The product multiplies all 24 entries, 20 of them by 0, and gives row ${at()} bit for bit. Reading the row gives the same without any multiplication.`
        : "0 × ∞ is NaN, and the sum takes it in: one infinity anywhere in its column spoils every other token’s product. Reading the row would not notice.");
    };
  };

  // ---------------------------------------------------------------- A2: heads add up
  const heads = (play) => {
    const normal = drawn(2);
    const shares = Array.from({ length: 4 }, () => times(vector(normal, 3), matrix(normal, 3, 8, 0.6)));
    const whole = shares.reduce(plus);
    const ticks = shares.map((_, index) => play.tick(`head ${index + 1}`, index < 3));
    return () => {
      const chosen = shares.filter((_, index) => ticks[index]());
      const sum = chosen.length ? chosen.reduce(plus) : whole.map(() => 0);
      const gap = furthest(sum, whole);
      draw.columns(play.picture, `Sum of ${chosen.length} heads beside the whole output`, whole.map((_, i) => String(i + 1)), [{ values: whole, fill: "var(--ink)", hollow: true }, { values: sum, fill: colour(0) }]);
      play.facts({ gap });
      play.say(`Outline: the layer’s output, eight components. Filled: the sum of the chosen heads’ own outputs, each head times its rows of the output matrix. ${chosen.length === 4 ? `All four give the whole (largest difference ${said(gap)}).` : `Without ${4 - chosen.length} of them the worst component is wrong by ${said(gap)}: that is the contribution of those heads.`}`);
    };
  };

  // ---------------------------------------------------------------- A4: the scale of the scores
  const scale = (play) => {
    const width = play.slider("d_k", 1, 7, 7, (n) => String(2 ** n));
    const divided = play.tick("divide by √d_k");
    const keys = 24;
    return () => {
      const d = 2 ** width();
      const normal = drawn(7);
      const query = vector(normal, d);
      const scores = Array.from({ length: keys }, () => dot(query, vector(normal, d)) / (divided() ? Math.sqrt(d) : 1));
      const weights = softmax(scores);
      const mean = scores.reduce((a, b) => a + b) / keys;
      const spread = Math.sqrt(scores.reduce((sum, s) => sum + (s - mean) ** 2, 0) / (keys - 1));
      const largest = Math.max(...weights);
      draw.columns(play.picture, `Softmax weights of ${keys} keys, the largest ${said(largest, 2)}`, weights.map(() => ""), [{ values: [...weights].sort((a, b) => b - a), fill: colour(0) }], { low: 0, high: 1, height: 150 });
      play.facts({ largest, spread });
      play.say(`${keys} random keys of ${d} components. Their scores spread by ${said(spread, 2)} (√d_k is ${said(Math.sqrt(d), 2)}); the largest weight is ${said(100 * largest, 4)} %, where equal weights would be ${said(100 / keys, 2)} %. ${divided() ? "After the division the spread stays near 1 at every width, and no key takes all the weight." : d > 16 ? "The softmax is nearly one-hot before any training. Divide by √d_k, and the weights spread out." : "Increase d_k, and one key takes all the weight."}`);
    };
  };

  // ---------------------------------------------------------------- A5: the order of the words
  const order = (play) => {
    const WORDS = ["el", "gos", "mossega", "l’", "home"];
    const d = 8;
    const normal = drawn(5);
    const embedded = Object.fromEntries(WORDS.map((word) => [word, vector(normal, d)]));
    const [Q, K, V] = [0, 1, 2].map(() => matrix(normal, d, d, 1 / Math.sqrt(d)));
    let words = [...WORDS];
    const rotary = play.tick("rotary positions");
    play.button("swap the first two", () => ([words[0], words[1]] = [words[1], words[0]]));
    play.button("turn the prefix round", () => (words = [words[1], words[2], words[3], words[0], words[4]]));
    play.button("as written", () => (words = [...WORDS]));
    const output = (text) => {
      const at = (row, position) => (rotary() ? turned(row, position) : row);
      const query = at(times(embedded[text[4]], Q), 4);
      const weights = softmax(text.map((word, position) => dot(query, at(times(embedded[word], K), position)) / Math.sqrt(d)));
      return text.map((word, i) => times(embedded[word], V).map((x) => x * weights[i])).reduce(plus);
    };
    return () => {
      const [before, now] = [output(WORDS), output(words)];
      const gap = furthest(before, now);
      draw.columns(play.picture, `Output at the last word for: ${words.join(" ")}`, before.map((_, i) => String(i + 1)), [{ values: before, fill: "var(--ink)", hollow: true }, { values: now, fill: colour(rotary() ? 1 : 0) }]);
      play.facts({ gap });
      const moved = words.join() !== WORDS.join();
      play.say(element("strong", {}, words.join(" ")), `. Outline: the last word’s output for the text as written; filled: for this order. Largest change: ${said(gap)}. ${!moved ? "Move the words." : gap < 1e-9 ? "One layer without positions sees a bag of words: it adds the same terms in a different order." : "With rotary positions the scores depend on distances, so the order counts."}`);
    };
  };

  // ---------------------------------------------------------------- A6, B4, E1: positions on the circle
  const circle = (play) => {
    const [q, k, frequency] = [[1, 2], [3, -1], 0.17];
    const m = play.slider("position m of q", 0, 40, 2);
    const n = play.slider("position n of k", 0, 40, 7);
    const shift = play.slider("move both by", 0, 40, 0, (x) => `+${x}`);
    const still = play.tick("rotate only the query");
    const turn = ([x, y], angle) => [x * Math.cos(angle) - y * Math.sin(angle), x * Math.sin(angle) + y * Math.cos(angle)];
    return () => {
      const [a, b] = [m() + shift(), n() + shift()];
      const [u, v] = [turn(q, frequency * a), still() ? k : turn(k, frequency * b)];
      const product = dot(u, v);
      const relative = dot(q, turn(k, frequency * (n() - m())));
      const size = Math.min(draw.widthOf(play.picture), 280);
      const [middle, unit] = [size / 2, (size / 2 - 22) / Math.hypot(...k)];
      const arrow = ([x, y], fill, name, faint) => {
        const end = [middle + unit * x, middle - unit * y];
        return [draw.svg("line", { x1: middle, y1: middle, x2: end[0], y2: end[1], stroke: fill, "stroke-width": faint ? 1 : 3, "stroke-dasharray": faint ? "3 3" : null }),
          ...(faint ? [] : [draw.svg("circle", { cx: end[0], cy: end[1], r: 4, fill }), draw.words(middle + (unit + 5) * x - 4, middle - (unit + 5) * y + 4, name, { class: "strong" })])];
      };
      draw.put(play.picture, size, size, `Query turned to position ${a}, key to position ${b}`, [
        ...[q, k].map((w) => draw.svg("circle", { cx: middle, cy: middle, r: unit * Math.hypot(...w), fill: "none", stroke: "var(--rule)" })),
        ...arrow(q, colour(0), "", true), ...arrow(k, colour(1), "", true), ...arrow(u, colour(0), "q"), ...arrow(v, colour(1), "k"),
      ]);
      play.facts({ product, relative });
      play.say(`q at position ${a}, k at ${b}: their dot product is ${said(product, 6)}. ${still() ? "The key is not rotated, so the product depends on the position of q, not on the distance." : `At positions 0 and ${n() - m()} it is ${said(relative, 6)} too: only the distance counts. If you move both, the angle between them stays the same.`}`);
    };
  };

  // ---------------------------------------------------------------- A7: the causal mask
  const mask = (play) => {
    const [T, d] = [6, 6];
    const normal = drawn(11);
    const tokens = matrix(normal, T, d);
    const [Q, K, V] = [0, 1, 2].map(() => matrix(normal, d, d, 1 / Math.sqrt(d)));
    const at = play.slider("position", 1, T, 3);
    const masked = play.tick("causal mask", true);
    const attended = (text, t) => softmax(text.map((token, j) => (masked() && j > t ? -Infinity : dot(times(text[t], Q), times(token, K)) / Math.sqrt(d))));
    const output = (text, t) => {
      const weights = attended(text, t);
      return text.map((token, j) => times(token, V).map((x) => (weights[j] ? x * weights[j] : 0))).reduce(plus);
    };
    return () => {
      const t = at() - 1;
      const gap = furthest(output(tokens, t), output(tokens.slice(0, t + 1), t));
      const rows = tokens.map((_, i) => attended(tokens, i).map((weight) => ({ weight: Math.sqrt(weight), text: weight ? weight.toFixed(2) : "", ring: i === t })));
      draw.grid(play.picture, `Attention weights of ${T} positions, row ${t + 1} marked`, rows, { sides: tokens.map((_, i) => `reads at ${i + 1}`), tops: tokens.map((_, i) => String(i + 1)) });
      play.facts({ gap });
      play.say(`Position ${t + 1} of a pass over all ${T} tokens against a pass over its first ${t + 1} alone: largest difference ${said(gap)}. ${masked() ? "Each position reads only itself and earlier positions, so one pass trains all positions at once." : t === T - 1 ? "No position comes after the last one; choose an earlier one." : "Without the mask the position reads later tokens too, so it sees the token that it has to predict."}`);
    };
  };

  // ---------------------------------------------------------------- A8: the terms of the rule
  const LLAMA = { L: 32n, d: 4096n, h: 32n, h_kv: 8n, d_h: 128n, f: 14336n, V: 128256n };
  const asked = (tied, sizes) => ({ model: tied ? "llama.tied" : "llama", sizes, B: 1n, T: 8192n, cache: "bf16" });
  const rule = (play) => {
    const parts = elements.data.whatif.parts;
    const kv = play.slider("K/V heads of 32", 0, 5, 3, (n) => String(2 ** n));
    const ratio = play.slider("feed-forward / width", 48, 144, 84, (n) => said(n / 24));
    const words = (n) => (n === 17 ? LLAMA.V : 2n ** BigInt(n));
    const vocabulary = play.slider("vocabulary", 13, 18, 17, (n) => grouped(words(n)));
    const tied = play.tick("head tied to the embedding");
    play.button("Llama 3 8B", () => [kv.set(3), ratio.set(84), vocabulary.set(17), tied.set(false)]);
    play.button("as the rule assumes", () => [kv.set(5), ratio.set(64), tied.set(true)]);
    return () => {
      const sizes = { ...LLAMA, h_kv: 2n ** BigInt(kv()), f: (LLAMA.d * BigInt(ratio())) / 24n, V: words(vocabulary()) };
      const state = asked(tied(), sizes);
      const value = (name) => Number(quantities.one(state, name)[0]);
      const N = value("parameters");
      let at = value("rule");
      const steps = [{ label: "the rule 12Ld² + Vd", text: short(at, 3), from: 0, to: at, fill: "var(--series-8)" }];
      for (const name of parts) {
        const change = value(`gap ${name}`);
        if (change) steps.push({ label: name, text: `${change < 0 ? "−" : "+"}${said(Math.abs(100 * change) / N)} %`, from: at, to: at + change, fill: change > 0 ? "var(--series-6)" : "var(--series-2)" });
        at += change;
      }
      steps.push({ label: "the exact count", text: short(N, 3), from: 0, to: N, fill: "var(--series-1)" });
      const error = (100 * (N - value("rule"))) / N;
      draw.waterfall(play.picture, `The rule is ${said(Math.abs(error))} % too ${error > 0 ? "low" : "high"}`, steps);
      play.facts({ error });
      play.say(`32 layers, width 4,096. The rule is ${said(Math.abs(error))} % too ${error > 0 ? "low" : "high"}. It assumes 4d² for attention (one K/V head for each query head), 8d² for the feed-forward (as a gated one of width 8d/3 has) and one table for embedding and head. Each of these three can be wrong at any size of the model.`);
    };
  };

  // ---------------------------------------------------------------- A9: 6ND and days
  const days = (play) => {
    const steps = [1, 1.5, 2, 3, 4, 5, 7];
    const ladder = (power) => (n) => steps[n % 7] * 10 ** (power + Math.floor(n / 7));
    const [sizeOf, tokensOf, devicesOf] = [ladder(9), ladder(11), ladder(2)];
    const size = play.slider("parameters N", 0, 20, 13, (n) => draw.brief(sizeOf(n)));
    const tokens = play.slider("tokens D", 0, 20, 15, (n) => draw.brief(tokensOf(n)));
    const devices = play.slider("devices", 0, 20, 14, (n) => (n === 14 ? "16,000" : grouped(devicesOf(n))));
    const rate = play.slider("TFLOP/s each", 50, 1000, 400, String, 10);
    const when = (N, D, G, R) => {
      const [F] = FORMULAS.rules.rule_flops({ N: BigInt(N), D: BigInt(D) });
      const [above, below] = FORMULAS.rules.seconds({ F, G: BigInt(G), R: BigInt(R) * 10n ** 12n });
      return { F, seconds: amounts.ratio([above, below]) };
    };
    return () => {
      const [N, D, G, R] = [sizeOf(size()), tokensOf(tokens()), devices() === 14 ? 16000 : devicesOf(devices()), rate()];
      const { F, seconds } = when(N, D, G, R);
      const rates = Array.from({ length: 20 }, (_, i) => 50 * (i + 1));
      draw.lines(play.picture, `Days against the rate of a device: ${said(seconds / 86400)} at ${R} TFLOP/s`, [{ points: rates.map((r) => [r, when(N, D, G, r).seconds / 86400]), fill: colour(0) }],
        { x: "TFLOP/s that each device sustains", y: "days", low: 0, marks: [{ x: R, y: seconds / 86400, text: `${said(seconds / 86400)} days`, fill: colour(0) }], height: 180 });
      play.facts({ days: seconds / 86400 });
      play.say(`6 × ${draw.brief(N)} × ${draw.brief(D)} = ${short(Number(F), 3)} FLOP; ${grouped(G)} devices at ${R} TFLOP/s need ${short(seconds, 6)} s or ${said(seconds / 86400)} days. The rate is assumed; real rates are well below a device’s peak.`);
    };
  };

  // ---------------------------------------------------------------- B5: grouped queries and the cache
  const grouping = (play) => {
    const kv = play.slider("K/V heads", 0, 5, 3, (n) => String(2 ** n));
    return () => {
      const h_kv = 2 ** kv();
      const bytes = (n) => quantities.one(asked(false, { ...LLAMA, h_kv: BigInt(n) }), "cache");
      const [now, all] = [bytes(h_kv), bytes(32)];
      const cells = Array.from({ length: 4 }, (_, r) => Array.from({ length: 8 }, (_, c) => {
        const head = Math.floor((8 * r + c) / (32 / h_kv));
        return { text: String(head), weight: 0.3 + 0.6 * ((head * 7) % 11) / 10, fill: colour(head) };
      }));
      draw.grid(play.picture, `The key/value head that each of 32 query heads reads, of ${h_kv}`, cells, { sides: ["query 0–7", "query 8–15", "query 16–23", "query 24–31"] });
      play.facts({ ratio: amounts.ratio([now[0] * all[1], all[0] * now[1]]) });
      play.say(`Each cell is a query head; its number is that of the key/value head that it reads. ${32 / h_kv === 1 ? "Each has its own" : `${32 / h_kv} query heads share one`}. The cache of 8,192 tokens in 32 layers of 128-wide heads takes ${amounts.bytesText(now)}${h_kv === 32 ? "" : `, 1/${32 / h_kv} of ${amounts.bytesText(all)}`}; the queries and the FLOPs of scores and values stay the same.`);
    };
  };

  // ---------------------------------------------------------------- B6: LayerNorm and RMSNorm
  const norms = (play) => {
    const tenth = (n) => String(n / 10).replace("-", "−");
    const [x, y] = [play.slider("x₁", -40, 40, 10, tenth), play.slider("x₂", -40, 40, 30, tenth)];
    const shift = play.slider("add to both", -40, 40, 0, tenth);
    const factor = play.slider("multiply both by", 1, 40, 10, tenth);
    const normed = (v, centred) => {
      const mean = centred ? (v[0] + v[1]) / 2 : 0;
      const moved = v.map((x) => x - mean);
      const size = Math.sqrt((moved[0] ** 2 + moved[1] ** 2) / 2);
      return moved.map((x) => (size ? x / size : 0));
    };
    return () => {
      const before = [x() / 10, y() / 10];
      const now = before.map((v) => (v * factor()) / 10 + shift() / 10);
      const outputs = [true, false].map((centred) => [normed(before, centred), normed(now, centred)]);
      draw.columns(play.picture, "LayerNorm and RMSNorm of two components, before and after", ["LayerNorm 1", "LayerNorm 2", "RMSNorm 1", "RMSNorm 2"],
        [{ values: outputs.flatMap(([a]) => a), fill: "var(--ink)", hollow: true }, { values: outputs.flatMap(([, b]) => b), fill: colour(0) }], { low: -1.5, high: 1.5 });
      const [layer, rms] = outputs.map(([a, b]) => furthest(a, b));
      play.facts({ layer, rms });
      const show = (v) => `(${v.map((n) => said(n)).join(", ")})`;
      play.say(`Input ${show(now)}: LayerNorm gives ${show(outputs[0][1])}, RMSNorm ${show(outputs[1][1])}. Outline: before adding and multiplying. ${shift() ? `Adding one number to both components changes RMSNorm by ${said(rms)} and LayerNorm by ${said(layer)}, because LayerNorm subtracts the mean first.` : "Multiplying changes neither (ε is 0 here). Add a number to both components."}`);
    };
  };

  // ---------------------------------------------------------------- B8, E2: softmax block by block
  const blocks = (play) => {
    const [scores, values] = [[1000, 1001, 999, 1002], [2, -1, 3, 4]];
    const size = play.slider("keys in a block", 1, 4, 2);
    const step = play.slider("blocks read", 0, 2, 1);
    const naive = play.tick("without the maximum");
    return () => {
      const count = Math.ceil(4 / size());
      if (step() > count) step.set(count);
      step.set(step(), count);
      let [m, a, o, factor] = [naive() ? 0 : -Infinity, 0, 0, 1];
      for (let block = 0; block < step(); block += 1) {
        const keys = scores.map((_, i) => i).slice(block * size(), (block + 1) * size());
        const most = naive() ? 0 : Math.max(m, ...keys.map((i) => scores[i]));
        factor = m === -Infinity ? 0 : Math.exp(m - most);
        a = a * factor + keys.reduce((sum, i) => sum + Math.exp(scores[i] - most), 0);
        o = o * factor + keys.reduce((sum, i) => sum + Math.exp(scores[i] - most) * values[i], 0);
        m = most;
      }
      const dense = dot(softmax(scores), values);
      const reads = Math.min(4, step() * size());
      const weights = scores.map((s, i) => (i < reads ? Math.exp(s - m) : 0));
      draw.columns(play.picture, `Weights exp(score − m) of the ${reads} keys read`, scores.map((s, i) => `${s} → ${values[i]}`.replace("-", "−")), [{ values: weights, fill: colour(0) }], { low: 0, high: 1, height: 150 });
      play.facts({ result: o / a, dense });
      const one = (x) => (Number.isNaN(x) ? "NaN" : !Number.isFinite(x) ? (x < 0 ? "−∞" : "∞") : said(x, 6));
      play.say(`${step() === 0 ? "Nothing read yet. " : `After ${step()} of ${count} blocks: `}m = ${one(m)}, a = ${one(a)}, o = ${one(o)}${step() ? `, o/a = ${one(o / a)}` : ""}. ${naive() ? "exp(1000) is ∞ in any precision here, and ∞/∞ is NaN." : step() > 1 ? `Before the last block was added, a and o were multiplied by exp(old m − new m) = ${said(factor)}.` : ""} ${step() === count ? `The dense softmax gives ${said(dense, 6)}.` : ""}`);
    };
  };

  const FIGURES = {
    "A1.1": lookup, "A2.1": heads, "A4.3": scale, "A5.2": order, "A6.1": circle, "A7.1": mask, "A8.4": rule, "A9.2": days,
    "B4.1": circle, "B5.2": grouping, "B6.2": norms, "B8.1": blocks, E1: circle, E2: blocks,
  };
  for (const host of document.querySelectorAll(".play[data-play]")) {
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", `Figure to touch, ${host.dataset.play}`);
    const play = frame(host);
    play.changed = FIGURES[host.dataset.play](play);
    draw.at(play.picture, play.changed);
  }
})();
