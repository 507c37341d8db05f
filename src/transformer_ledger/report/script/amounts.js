/* Amounts as people type and read them, exact: integers of any size, and quotients of two of them. */
const amounts = (() => {
  const { element, short, grouped, numberNode } = elements;

  const SUFFIXES = { k: 3, K: 3, M: 6, G: 9, B: 9, T: 12, P: 15 };
  const BINARY = { Ki: 10n, Mi: 20n, Gi: 30n, Ti: 40n };
  const TYPED = /^(\d+|\d{1,3}(?:[,_ ]\d{3})+)?(?:\.(\d*))?(?:e\+?(\d{1,3}))?\s*(Ki|Mi|Gi|Ti|[kKMGBTP])?$/i;

  /** "12.5", "1e3", "8k", "8Ki" or "15T" × 10^places as a BigInt; null where it is none, or no integer. */
  const read = (text, places = 0) => {
    const match = TYPED.exec(String(text).trim());
    if (!match || !(match[1] || match[2])) return null;
    const [, whole = "", part = "", power = "0", suffix = ""] = match;
    const binary = Object.keys(BINARY).find((name) => name.toLowerCase() === suffix.toLowerCase());
    const decimal = suffix ? SUFFIXES[suffix] ?? SUFFIXES[suffix.toUpperCase()] : 0;
    const digits = BigInt(whole.replace(/[,_ ]/g, "") + part || "0") << (binary ? BINARY[binary] : 0n);
    const shift = Number(power) + (binary ? 0 : decimal ?? 0) + places - part.length;
    if (shift >= 0) return digits * 10n ** BigInt(shift);
    const below = 10n ** BigInt(-shift);
    return digits % below === 0n ? digits / below : null;
  };
  /** The digits of value / 10^places, which `read` takes back. */
  const digits = (value, places = 0) => {
    if (!places) return String(value);
    const text = String(value).padStart(places + 1, "0");
    const part = text.slice(-places).replace(/0+$/, "");
    return text.slice(0, -places) + (part ? `.${part}` : "");
  };
  /** 15000000000000 → 15T: the shortest that `read` takes back. */
  const brief = (value) => {
    for (const [suffix, places] of [["P", 15], ["T", 12], ["G", 9], ["M", 6]]) {
      if (value < 10n ** BigInt(places)) continue;
      const text = digits(value, places);
      return text.length < 7 ? text + suffix : String(value);
    }
    return String(value);
  };

  const ratio = ([above, below]) => {
    if (above === 0n) return 0;
    const scale = BigInt(Math.max(0, 20 - (String(above).length - String(below).length)));
    return Number((above * 10n ** scale) / below) / Number(10n ** scale);
  };
  const integer = ([above, below]) => (above % below === 0n ? above / below : null);
  const text = (fraction, places = 5) => {
    const whole = integer(fraction);
    return short(whole == null ? ratio(fraction) : String(whole), places);
  };
  const node = (fraction, unit = "", places = 5) => {
    const whole = integer(fraction);
    return element("span", {}, numberNode(whole == null ? ratio(fraction) : String(whole), places), unit ? ` ${unit}` : "");
  };
  const UNITS = [[50n, "PiB"], [40n, "TiB"], [30n, "GiB"], [20n, "MiB"], [10n, "KiB"]];
  const upper = ([above, below]) => (above + below - 1n) / below;
  const bytesText = ([above, below]) => {
    for (const [power, unit] of UNITS) if (above >= below << power) return `${short(ratio([above, below << power]), 4)} ${unit}`;
    return `${grouped(upper([above, below]))} bytes`;
  };
  const bytes = (fraction) => {
    const [brief, full] = [bytesText(fraction), `${grouped(upper(fraction))} bytes`];
    if (brief === full) return element("span", {}, full);
    return element("span", { class: "n", title: full }, element("span", { class: "brief" }, brief), element("span", { class: "full" }, full));
  };
  const add = ([a, b], [c, e]) => [a * e + c * b, b * e];
  const less = ([a, b], [c, e]) => [a * e - c * b, b * e];
  const atMost = ([a, b], [c, e]) => a * e <= c * b;

  return { read, digits, brief, ratio, text, node, bytes, bytesText, upper, add, less, atMost };
})();
