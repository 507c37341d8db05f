/* Pictures that are drawn as wide as their place: bars, waterfalls and lines, coloured by the page's style. */
const draw = (() => {
  const { element } = elements;

  const LINE = 15;  // of text, in pixels
  const svg = (tag, attributes = {}, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) if (value != null) made.setAttribute(name, value);
    made.append(...children.filter((child) => child != null));
    return made;
  };
  const words = (x, y, content, attributes = {}) => svg("text", { x, y, ...attributes }, content);
  const roomFor = (text) => 6.6 * text.length + 8;
  const colour = (index) => `var(--series-${(index % 8) + 1})`;
  // Widths are measured for all places at once and then remembered: to ask for each would lay the page out each time.
  const PLACES = ".play, .results";
  const known = new WeakMap();
  const waiting = new Map();  // place → what draws there
  const widthOf = (host) => Math.max(220, Math.floor(known.get(host.closest(PLACES)) || 640));
  const isKnown = (place) => known.has(place.closest(PLACES));
  /** `drawn` is called once `start` has measured the place, and whenever its width changes. */
  const at = (place, drawn) => waiting.set(place, drawn);
  const start = () => {
    const measured = [...waiting.keys()].map((place) => [place, place.clientWidth]);
    for (const [place, width] of measured) known.set(place.closest(PLACES), width);
    for (const drawn of waiting.values()) drawn();
    const watching = new ResizeObserver((entries) => {
      for (const { target, contentRect: { width } } of entries) {
        const place = target.closest(PLACES);
        if (!width || Math.abs(known.get(place) - width) < 1) continue;
        known.set(place, width);
        waiting.get(target)();
      }
    });
    for (const place of waiting.keys()) watching.observe(place);
  };

  /** One picture in `host`, `label` read in its place; `content` are SVG nodes. */
  const put = (host, width, height, label, content) => {
    host.replaceChildren(svg("svg", { class: "drawn", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...content));
  };
  const key = (entries) => element("ul", { class: "key" }, ...entries.map(([name, fill]) => {
    const mark = element("span", { class: "swatch", "aria-hidden": "true" });
    mark.style.background = fill;
    return element("li", {}, mark, name);
  }));

  const FAR = 12;  // limits; a bar that goes further is cut, and says so
  /** rows: {label, text, parts: [{name, value, fill}]}; limit: {value, label}, a line that a bar may reach. */
  const bars = (host, label, rows, { limit = null } = {}) => {
    const width = widthOf(host);
    const totals = rows.map((row) => row.parts.reduce((sum, part) => sum + part.value, 0));
    const top = limit ? LINE + 6 : 0;
    const longest = Math.max(limit ? 1.15 * limit.value : 0, ...totals, 1e-300);
    const most = limit ? Math.min(longest, FAR * limit.value) : longest;
    const scale = (width - 2) / most;
    const step = LINE + 30;
    const content = [];
    rows.forEach((row, index) => {
      const y = top + index * step;
      content.push(words(0, y + LINE - 3, row.label), words(width - 1, y + LINE - 3, row.text ?? "", { "text-anchor": "end", class: "strong" }));
      let x = 0;
      for (const part of row.parts) {
        const length = Math.min(part.value * scale, width - 2 - x);
        if (length <= 0) continue;
        content.push(svg("rect", { x, y: y + LINE + 1, width: Math.max(length, 0.5), height: 18, fill: part.fill, class: row.faint ? "faint" : null }, svg("title", {}, `${part.name}: ${part.text ?? ""}`)));
        if (!row.faint && length > roomFor(part.inside ?? part.name)) content.push(words(x + 5, y + LINE + 14, part.inside ?? part.name, { class: "inside" }));
        x += length;
      }
      if (totals[index] > 1.0001 * most) content.push(words(width - 4, y + LINE + 14, "» cut", { "text-anchor": "end", class: "inside" }));
    });
    const height = top + rows.length * step;
    if (limit) {
      const x = Math.min(width - 1, limit.value * scale);
      content.unshift(svg("line", { x1: x, x2: x, y1: LINE + 2, y2: height - 6, class: "limit" }));
      for (let index = 0; index < rows.length; index += 1) content.push(svg("line", { x1: x, x2: x, y1: top + index * step + LINE + 1, y2: top + index * step + LINE + 19, class: "limit" }));
      content.push(words(Math.max(x, Math.min(roomFor(limit.label), width)), LINE - 3, limit.label, { "text-anchor": "end", class: "limit-text" }));
    }
    put(host, width, height, label, content);
  };

  /** rows: {label, text, from, to, fill}: each bar goes on where the one above ends. */
  const waterfall = (host, label, rows) => {
    const width = widthOf(host);
    const ends = rows.flatMap((row) => [row.from, row.to]);
    const [low, high] = [Math.min(0, ...ends), Math.max(...ends)];
    const place = (value) => 1 + ((value - low) * (width - 2)) / (high - low || 1);
    const step = LINE + 22;
    const [content, threads] = [[], []];
    rows.forEach((row, index) => {
      const y = index * step;
      const [left, right] = [place(Math.min(row.from, row.to)), place(Math.max(row.from, row.to))];
      content.push(words(0, y + LINE - 3, row.label), words(width - 1, y + LINE - 3, row.text, { "text-anchor": "end", class: "strong" }));
      content.push(svg("rect", { x: left, y: y + LINE + 1, width: Math.max(1, right - left), height: 12, fill: row.fill }));
      if (index + 1 < rows.length) threads.push(svg("line", { x1: place(row.to), x2: place(row.to), y1: y + LINE + 13, y2: y + step + LINE + 1, class: "thread" }));
    });
    put(host, width, rows.length * step, label, [...threads, ...content]);
  };

  const ticks = (low, high, logarithmic) => {
    if (logarithmic) {
      const [a, b] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
      const every = Math.max(1, Math.ceil((b - a) / 5));
      return Array.from({ length: Math.max(0, b - a + 1) }, (_, i) => a + i).filter((power) => (power - a) % every === 0).map((power) => 10 ** power);
    }
    const step = 10 ** Math.floor(Math.log10((high - low) / 2 || 1));
    const wide = [1, 2, 5].map((n) => n * step).find((n) => (high - low) / n <= 5) ?? 10 * step;
    const first = Math.ceil(low / wide - 1e-9);
    return Array.from({ length: Math.floor(high / wide + 1e-9) - first + 1 }, (_, i) => (first + i) * wide);
  };
  const brief = (value) => {
    const size = Math.abs(value);
    for (const [power, unit] of [[15, "P"], [12, "T"], [9, "G"], [6, "M"], [3, "k"]]) if (size >= 10 ** power) return `${Number((value / 10 ** power).toPrecision(3))}${unit}`;
    return String(Number(value.toPrecision(3))).replace("-", "−");
  };

  /** series: {name, points: [[x, y]], fill, dashed, faint}; marks: {x, y, text}. */
  const lines = (host, label, series, { logX = false, logY = false, x = "", y = "", marks = [], low = null, high = null, height = 210, yTick = brief, xTick = brief } = {}) => {
    const width = widthOf(host);
    const points = series.flatMap((one) => one.points);
    const [xs, ys] = [points.map((p) => p[0]), points.map((p) => p[1])];
    const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
    const [y0, y1] = [low ?? Math.min(...ys), high ?? Math.max(...ys)];
    const box = { left: 44, right: width - 10, top: LINE + 8, bottom: height - 34 };
    const map = (value, a, b, from, to, log) => {
      const [v, lo, hi] = log ? [value, a, b].map((n) => Math.log(Math.max(n, 1e-300))) : [value, a, b];
      return from + ((v - lo) / (hi - lo || 1)) * (to - from);
    };
    const X = (value) => map(value, x0, x1, box.left, box.right, logX);
    const Y = (value) => map(value, y0, y1, box.bottom, box.top, logY);
    const content = [words(0, LINE - 3, y), words(box.right, height - 3, x, { "text-anchor": "end" })];
    for (const tick of ticks(y0, y1, logY)) content.push(svg("line", { x1: box.left, x2: box.right, y1: Y(tick), y2: Y(tick), class: "grid" }), words(box.left - 5, Y(tick) + 4, yTick(tick), { "text-anchor": "end", class: "soft" }));
    for (const tick of ticks(x0, x1, logX)) content.push(words(X(tick), box.bottom + 15, xTick(tick), { "text-anchor": "middle", class: "soft" }));
    for (const one of series) {
      const path = one.points.map(([a, b], index) => `${index ? "L" : "M"}${X(a).toFixed(1)},${Y(b).toFixed(1)}`).join("");
      content.push(svg("path", { d: path, class: "line", stroke: one.fill, "stroke-dasharray": one.dashed ? "5 4" : null, opacity: one.faint ? 0.5 : null }));
    }
    for (const mark of marks) {
      const [a, b] = [Math.min(box.right, Math.max(box.left, X(mark.x))), Math.min(box.bottom, Math.max(box.top, Y(mark.y)))];
      const room = roomFor(mark.text ?? "");
      const end = a + room > width;
      content.push(svg("circle", { cx: a, cy: b, r: 4.5, fill: mark.fill ?? "var(--accent)" }), words(end ? a - 8 : a + 8, Math.max(LINE + 14, b - 7), mark.text ?? "", { class: "strong", "text-anchor": end ? "end" : null }));
    }
    put(host, width, height, label, content);
  };

  /** Columns side by side, up or down from zero: names under them; series: {values, fill, hollow}. */
  const columns = (host, label, names, series, { low = null, high = null, height = 170 } = {}) => {
    const width = widthOf(host);
    const all = series.flatMap((one) => one.values).filter(Number.isFinite);
    const [least, most] = [low ?? Math.min(0, ...all), high ?? Math.max(0, ...all)];
    const [top, bottom] = [6, height - LINE - 6];
    const Y = (value) => bottom - ((Math.min(most, Math.max(least, value)) - least) / (most - least || 1)) * (bottom - top);
    const slot = width / names.length;
    const each = Math.min(34, (0.8 * slot) / series.length);
    const content = [svg("line", { x1: 0, x2: width, y1: Y(0), y2: Y(0), class: "thread" })];
    names.forEach((name, index) => {
      const middle = (index + 0.5) * slot;
      content.push(words(middle, height - 4, name, { "text-anchor": "middle", class: "soft" }));
      series.forEach(({ values, fill, hollow }, number) => {
        const value = values[index];
        if (!Number.isFinite(value)) return content.push(words(middle, Y(0) - 4, String(value), { "text-anchor": "middle", class: "strong" }));
        const x = middle + (number - series.length / 2) * each;
        const [from, to] = [Y(0), Y(value)];
        content.push(svg("rect", { x, y: Math.min(from, to), width: each - 1.5, height: Math.max(0.75, Math.abs(to - from)), fill: hollow ? "none" : fill, stroke: hollow ? fill : null, "stroke-width": hollow ? 1.5 : null }));
      });
    });
    put(host, width, height, label, content);
  };

  /** A grid of cells: {text, weight (0 to 1), fill, ring}; `sides` are texts left of the rows, `tops` above the columns. */
  const grid = (host, label, rows, { sides = [], tops = [], cell = 34 } = {}) => {
    const left = sides.length ? Math.max(...sides.map(roomFor)) : 0;
    const width = widthOf(host);
    const count = Math.max(...rows.map((row) => row.length));
    const size = Math.min(cell * 1.6, (width - left - 2) / count);
    const top = tops.length ? LINE + 4 : 1;
    const content = tops.map((text, index) => words(left + (index + 0.5) * size, LINE - 2, text, { "text-anchor": "middle", class: "soft" }));
    rows.forEach((row, r) => {
      const y = top + r * (cell - 6);
      if (sides[r]) content.push(words(0, y + 18, sides[r], { class: "soft" }));
      row.forEach((one, c) => {
        if (!one) return;
        const x = left + c * size;
        content.push(svg("rect", { x: x + 1, y, width: size - 2, height: cell - 8, fill: one.fill ?? "var(--series-1)", "fill-opacity": one.weight ?? 0, class: "cellbox", style: one.ring ? "stroke: var(--accent); stroke-width: 2" : null }));
        if (one.text) content.push(words(x + size / 2, y + 18, one.text, { "text-anchor": "middle", class: (one.weight ?? 0) > 0.55 ? "inside" : "plain" }));
      });
    });
    put(host, width, top + rows.length * (cell - 6) + 2, label, content);
  };

  return { svg, words, put, key, bars, waterfall, lines, columns, grid, brief, colour, widthOf, isKnown, at, start, LINE };
})();
