/* Tables that sort, filter, copy and download; the full ones are filled when their box opens. */
(() => {
  const { data, element, grouped, isInteger, numberNode } = elements;

  // A cell is a number, a text, or of an interval its two ends; an integer of any size may come as text.
  const isEmpty = (value) => value == null || value === "";
  const isNumber = (value) => !isEmpty(value) && !Number.isNaN(Number(value));
  const compare = (a, b) => {
    if (Array.isArray(a) && Array.isArray(b)) return compare(a[0], b[0]) || compare(a[1], b[1]);
    if (isInteger(a) && isInteger(b)) {
      const [x, y] = [BigInt(a), BigInt(b)];
      return x < y ? -1 : x > y ? 1 : 0;
    }
    if (isNumber(a) && isNumber(b)) return Number(a) - Number(b);
    return isNumber(b) - isNumber(a) || String(a).localeCompare(String(b), "en", { numeric: true });
  };
  // A spreadsheet would run a text that begins like a formula; a number keeps its sign.
  const inert = (value) => {
    const text = value == null ? "" : String(value);
    return /^[=+\-@\t\r]/.test(text) && !isNumber(text) ? `'${text}` : text;
  };
  const field = (value) => {
    const text = inert(value);
    return /[",\r\n]/.test(text) || text.startsWith("'") ? `"${text.replaceAll('"', '""')}"` : text;
  };
  // Words without the punctuation of names: "Llama 3 8B" finds llama-3-8b.
  const wordsOf = (text) => ` ${String(text ?? "").toLowerCase().split(/[\s_-]+/).filter(Boolean).join(" ")}`;
  const PAGE = 100;
  // One stop of the Tab key for a row of buttons; the arrow keys go from one to the next.
  const roving = (buttons) => {
    buttons.forEach((button, index) => {
      button.tabIndex = index ? -1 : 0;
      button.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: buttons.length - 1 }[event.key];
        if (!step) return;
        event.preventDefault();
        let next = index;
        do next = (next + step) % buttons.length; while (buttons[next].hidden && next !== index);
        for (const other of buttons) other.tabIndex = -1;
        buttons[next].tabIndex = 0;
        buttons[next].focus();
      });
    });
  };

  class Table {
    // columns: {name, label, kind, meaning}; rows: {cells: raw values, tr: element or null}
    constructor(host, table, columns, rows, { filter = true, name = "table" } = {}) {
      Object.assign(this, { host, table, columns, rows, name, order: null, needle: "", limit: PAGE });
      this.body = table.tBodies[0];
      this.count = element("span", { "aria-live": "polite" });
      const tools = element("div", { class: "tools" });
      const bar = element("span", { role: "toolbar", "aria-label": `Tools of ${name}` });
      if (filter) {
        const input = element("input", { type: "search", placeholder: "Filter", "aria-label": `Filter rows of ${name}` });
        input.addEventListener("input", () => {
          this.needle = input.value.trim().toLowerCase();
          this.limit = PAGE;
          this.show();
        });
        tools.append(input);
      }
      const copy = element("button", { type: "button" }, "Copy");
      copy.addEventListener("click", () => this.copy(copy));
      const save = element("button", { type: "button" }, "CSV");
      save.setAttribute("aria-label", `Download ${name} as CSV`);
      copy.setAttribute("aria-label", `Copy ${name}`);
      save.addEventListener("click", () => this.download());
      this.more = element("button", { type: "button", hidden: true });
      this.more.addEventListener("click", () => {
        this.limit = Infinity;
        this.show();
      });
      bar.append(copy, save, this.more);
      roving([copy, save, this.more]);
      tools.append(bar, this.count);
      host.append(tools);
      roving([...table.tHead.rows[0].cells].map((cell, index) => {
        const button = element("button", { type: "button" });
        button.append(...cell.childNodes);
        cell.replaceChildren(button);
        button.addEventListener("click", () => this.sort(index, cell));
        return button;
      }));
      this.show();
    }

    sort(index, cell) {
      const turned = cell.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const other of this.table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", turned);
      this.order = [index, turned === "ascending" ? 1 : -1];
      this.show();
    }

    // Words that stand together in a cell somewhere are one phrase, from the left and as long as can be; a row must
    // have each phrase in one of its cells.
    phrases() {
      const words = wordsOf(this.needle).trim().split(" ");
      const found = [];
      while (words.length) {
        let count = words.length;
        const phrase = () => ` ${words.slice(0, count).join(" ")}`;
        while (count > 1 && !this.rows.some((row) => row.texts.some((text) => text.includes(phrase())))) count -= 1;
        found.push(phrase());
        words.splice(0, count);
      }
      return found;
    }

    chosen() {
      let rows = this.rows;
      if (this.needle) {
        for (const row of rows) row.texts ??= row.cells.map(wordsOf);
        const phrases = this.phrases();
        rows = rows.filter(({ texts }) => phrases.every((phrase) => texts.some((text) => text.includes(phrase))));
      }
      if (this.order) {
        const [index, sign] = this.order;
        const empty = (row) => isEmpty(row.cells[index]);
        rows = [...rows].sort((a, b) => (empty(a) || empty(b) ? empty(a) - empty(b) : sign * compare(a.cells[index], b.cells[index])));
      }
      return rows;
    }

    show() {
      const rows = this.chosen();
      const shown = rows.slice(0, this.limit);
      this.body.replaceChildren(...shown.map((row) => (row.tr ??= this.build(row))));
      const total = this.rows.length;
      this.count.textContent = rows.length === total ? (total > 10 ? `${grouped(total)} rows` : "") : `${grouped(rows.length)} of ${grouped(total)} rows`;
      this.more.hidden = rows.length <= shown.length;
      this.more.textContent = `Show all ${grouped(rows.length)}`;
    }

    build(row) {
      const tr = element("tr", { class: row.cells[0] === "control" ? "control-row" : null });
      row.cells.forEach((value, index) => {
        const { kind, name } = this.columns[index];
        const cell = element("td");
        if (value == null || value === "") cell.append(element("span", { class: "none" }, "—"));
        else if (kind === "number" && (isNumber(value) || value === "NaN")) cell.append(numberNode(value));
        else if (kind === "bool") cell.append(value ? "yes" : "no");
        else cell.append(String(value));
        if (kind === "number") cell.className = "num";
        else if (String(value ?? "").length > 36) cell.className = "wrap";
        if (name === "holds" && value === false) cell.classList.add("off");
        if (name === "difference" && this.name.startsWith("ledger")) cell.classList.add(String(value) === "0" ? "zero" : value == null ? "none" : "off");
        tr.append(cell);
      });
      return tr;
    }

    lines(separator, quote) {
      const head = this.columns.flatMap(({ label, kind }) => (kind === "interval" ? [`${label}, low`, `${label}, high`] : [label]));
      const cells = (row) => row.cells.flatMap((value, index) => (this.columns[index].kind === "interval" ? value || ["", ""] : [value]));
      return [head, ...this.chosen().map(cells)].map((line) => line.map(quote).join(separator));
    }

    async copy(button) {
      const text = this.lines("\t", (value) => inert(value).replace(/[\t\r\n]+/g, " ")).join("\n");
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        const area = element("textarea", { "aria-hidden": "true" });
        area.value = text;
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      const label = button.textContent;
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = label), 1200);
    }

    download() {
      const text = this.lines(",", field).join("\r\n") + "\r\n";
      const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
      element("a", { href: url, download: `${this.name.replaceAll("/", "-")}.csv` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    }
  }

  for (const table of document.querySelectorAll("table.data")) {
    const columns = [...table.tHead.rows[0].cells].map((cell) => ({ label: cell.dataset.label, kind: cell.dataset.kind, name: cell.dataset.label }));
    const read = ({ dataset: { v, high }, textContent }) => (high === undefined ? v ?? textContent.trim() : [v, high]);
    const rows = [...table.tBodies[0].rows].map((tr) => ({ tr, cells: [...tr.cells].map(read) }));
    new Table(table.closest(".table"), table, columns, rows, { filter: "filter" in table.dataset, name: table.dataset.name });
  }

  const decoded = (encoded) => {
    const columns = encoded.columns.map((column) => ({ ...column, label: column.unit ? `${column.name} [${column.unit}]` : column.name }));
    const read = columns.map((column) => (column.codes ? (row) => column.texts[column.codes[row]] ?? null : (row) => column.values[row]));
    const rows = Array.from({ length: encoded.rows }, (_, row) => ({ tr: null, cells: read.map((get) => get(row)) }));
    return { columns, rows };
  };
  const fill = (details, encoded, name) => {
    const host = details.querySelector(".host");
    if (host.dataset.filled) return;
    host.dataset.filled = "yes";
    host.replaceChildren();
    const { columns, rows } = decoded(encoded);
    const head = element("tr");
    for (const column of columns) {
      const cell = element("th", { scope: "col", title: column.meaning, class: column.kind === "number" ? "num" : null }, element("span", {}, column.name.replaceAll("_", " ")));
      if (column.unit) cell.append(" ", element("span", { class: "unit" }, column.unit));
      head.append(cell);
    }
    const table = element("table", { class: "data" }, element("thead", {}, head), element("tbody"));
    const box = element("div", { class: "scroll", "data-label": name }, table);
    const frame = element("div");
    host.append(frame);
    new Table(frame, table, columns, rows, { filter: rows.length > 5, name });
    frame.append(box);
    watch(box);
  };
  const opened = (details) => {
    const { table, cases, total } = details.dataset;
    if (table) fill(details, data.tables[table], table);
    if (cases) {
      fill(details, data.cases[cases], `cases-${cases}`);
      const shown = data.cases[cases].rows;
      if (shown < Number(total) && !details.querySelector(".note")) {
        details.append(element("p", { class: "note" }, `${grouped(shown)} of ${grouped(total)} cases: all controls, all that fail, and an even sample of the rest. The Parquet file has them all.`));
      }
    }
  };
  for (const details of document.querySelectorAll("details[data-table], details[data-cases]")) {
    details.addEventListener("toggle", () => details.open && opened(details));
  }

  // ---------------------------------------------------------------- boxes whose content is larger than they are
  // Only such a box is a stop of the Tab key and a landmark.
  const wide = new ResizeObserver((entries) => {
    const larger = entries.map(({ target }) => [target.scrollWidth > target.clientWidth + 1, !target.closest(".typeset") && target.scrollHeight > target.clientHeight + 1]);
    entries.forEach(({ target }, index) => {
      const [over, tall] = larger[index];
      target.classList.toggle("wide", over);
      const given = over || tall ? { role: "region", tabindex: "0", "aria-label": target.dataset.label } : { role: null, tabindex: null, "aria-label": null };
      for (const [name, value] of Object.entries(given)) value == null ? target.removeAttribute(name) : target.setAttribute(name, value);
    });
  });
  const watch = (box) => wide.observe(box);
  document.querySelectorAll(".scroll").forEach(watch);
})();
