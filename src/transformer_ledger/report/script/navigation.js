/* Contents that follow, links that land, claims by verdict, the meaning of a symbol. */
const navigation = (() => {
  const { data } = elements;

  // ---------------------------------------------------------------- claims by verdict
  const filters = document.getElementById("claim-filters");
  if (filters) {
    filters.hidden = false;
    filters.addEventListener("change", () => {
      const wanted = new Set([...filters.querySelectorAll("input:checked")].map((input) => input.value));
      for (const claim of document.querySelectorAll(".claim")) claim.hidden = !wanted.has(claim.dataset.verdict);
      for (const section of document.querySelectorAll(".claims")) section.hidden = !section.querySelector(".claim:not([hidden])");
    });
  }

  // ---------------------------------------------------------------- contents that follow, links that land
  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const places = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
  const follow = () => {
    let current = places[0];
    for (const place of places) {
      if (place.getBoundingClientRect().top > 120) break;
      current = place;
    }
    for (const link of links.values()) link.removeAttribute("aria-current");
    for (const item of document.querySelectorAll(".contents li.open")) item.classList.remove("open");
    const link = links.get(current?.id);
    if (!link) return;
    link.setAttribute("aria-current", "location");
    for (let item = link.closest("li"); item; item = item.parentElement.closest("li")) item.classList.add("open");
    const box = document.querySelector(".contents");
    if (box.scrollHeight > box.clientHeight) {
      const [top, bottom] = [link.offsetTop, link.offsetTop + link.offsetHeight];
      if (top < box.scrollTop + 40 || bottom > box.scrollTop + box.clientHeight - 40) box.scrollTop = top - box.clientHeight / 2;
    }
  };
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      follow();
    });
  }, { passive: true });
  addEventListener("resize", follow);
  if (matchMedia("(max-width: 67.99rem)").matches) document.getElementById("contents-box").open = false;

  const land = () => {
    const id = decodeURIComponent(location.hash.slice(1).split("?")[0]);
    const target = id && document.getElementById(id);
    if (!target) return;
    for (let details = target.closest("details"); details; details = details.parentElement.closest("details")) details.open = true;
    if (target.hidden || target.closest("[hidden]")) for (const input of filters.querySelectorAll("input:not(:checked)")) input.click();
    target.scrollIntoView({ behavior: "instant" });
    follow();
  };

  // ---------------------------------------------------------------- meaning of a symbol
  const tip = document.getElementById("tip");
  const hide = () => (tip.hidden = true);
  document.addEventListener("pointerover", (event) => {
    const marked = event.target.closest?.("[data-symbol]");
    if (!marked) return hide();
    tip.textContent = data.symbols[marked.dataset?.symbol ?? marked.getAttribute("data-symbol")] ?? "";
    tip.hidden = !tip.textContent;
    const box = marked.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${box.bottom + 8 + tip.offsetHeight > innerHeight ? box.top - tip.offsetHeight - 8 : box.bottom + 8}px`;
  });
  addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());

  return { land, follow };
})();
