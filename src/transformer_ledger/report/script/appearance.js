/* Colours and exact figures. */
(() => {
  const { root } = elements;

  const remembered = (key, value) => {
    try {
      if (value === undefined) return localStorage.getItem(key);
      localStorage.setItem(key, value);
    } catch { /* a page opened from a file may have no storage */ }
    return null;
  };
  const themes = ["system", "light", "dark"];
  const themeButton = document.getElementById("theme");
  const setTheme = (theme) => {
    if (theme === "system") root.removeAttribute("data-theme");
    else root.dataset.theme = theme;
    themeButton.textContent = `Colours: ${theme}`;
    themeButton.setAttribute("aria-label", `Colours: ${theme}`);
    themeButton.value = theme;
  };
  setTheme(themes.includes(remembered("theme")) ? remembered("theme") : "system");
  themeButton.addEventListener("click", () => {
    const next = themes[(themes.indexOf(themeButton.value) + 1) % themes.length];
    setTheme(next);
    remembered("theme", next);
  });
  const exactButton = document.getElementById("exact");
  exactButton.addEventListener("click", () => {
    exactButton.setAttribute("aria-pressed", String(root.classList.toggle("exact")));
  });
})();
