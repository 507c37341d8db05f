/* Last of all, when everything that a link can lead to is there. */
(() => {
  const { land, follow } = navigation;

  draw.start();
  addEventListener("hashchange", land);
  land();
  follow();
})();
