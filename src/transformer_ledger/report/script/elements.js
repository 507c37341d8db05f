/* What every module uses: the page's data, elements made, numbers as people read them. */
const elements = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === true) made.setAttribute(name, "");
      else if (value !== false && value != null) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child != null));
    return made;
  };

  const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  const raised = (n) => String(n).replace(/./g, (c) => SUPERSCRIPT[c]);
  const minus = (text) => text.replace("-", "−");
  const grouped = (integer) => minus(String(integer).replace(/\B(?=(\d{3})+(?!\d))/g, ","));
  const isInteger = (value) => /^-?\d+$/.test(String(value));
  const scientific = (value, digits) => {
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    return `${minus(mantissa)} × 10${raised(Number(exponent))}`;
  };
  const short = (value, digits = 5) => {
    if (isInteger(value) && String(value).replace("-", "").length <= 10) return grouped(value);
    const number = Number(value);
    if (Number.isNaN(number)) return String(value) === "NaN" ? "undefined (NaN)" : String(value);
    if (!Number.isFinite(number)) return number > 0 ? "∞" : "−∞";
    if (number === 0) return "0";
    const size = Math.abs(number);
    if (isInteger(value)) return scientific(number, digits);
    if (size < 1e-3 || size >= 1e7) return scientific(number, Math.min(digits, 3));
    const fixed = number.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
    const [whole, part] = fixed.split(".");
    const rest = (part || "").replace(/0+$/, "");
    return grouped(whole) + (rest ? `.${rest}` : "");
  };
  const exact = (value) => {
    if (isInteger(value)) return grouped(value);
    const [mantissa, power] = String(value).split("e");
    return minus(mantissa) + (power ? ` × 10${raised(Number(power))}` : "");
  };
  const numberNode = (value, digits) => {
    const brief = short(value, digits);
    const full = exact(value);
    const node = element("span", { class: "n" });
    if (brief === full) node.textContent = brief;
    else {
      node.title = full;
      node.append(element("span", { class: "brief" }, brief), element("span", { class: "full" }, full));
    }
    return node;
  };

  return { data, root, element, short, grouped, minus, isInteger, numberNode };
})();
