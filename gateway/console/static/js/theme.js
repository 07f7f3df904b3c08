// A classic script in the head: the theme is set before anything is drawn. `localStorage.theme` is light, dark or absent.
(() => {
  const CHOICES = ["system", "light", "dark"];
  const read = () => {
    try {
      return localStorage.getItem("theme") ?? "system";
    } catch {
      return "system"; // storage may be forbidden
    }
  };
  /** @param {string} choice */
  const keep = (choice) => {
    try {
      if (choice === "system") localStorage.removeItem("theme");
      else localStorage.setItem("theme", choice);
    } catch {
      // then the theme is only for this page
    }
  };
  /** @param {string} choice */
  const apply = (choice) => {
    if (choice === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    const button = document.getElementById("theme");
    if (!button) return;
    button.querySelector("span")?.replaceChildren(`Theme: ${choice}`);
    button.setAttribute("aria-label", `Theme: ${choice}`);
    document.dispatchEvent(new CustomEvent("themechange", { detail: choice }));
  };
  apply(read());
  document.addEventListener("DOMContentLoaded", () => {
    apply(read());
    document.getElementById("theme")?.addEventListener("click", () => {
      const next = CHOICES[(CHOICES.indexOf(read()) + 1) % CHOICES.length];
      keep(next);
      apply(next);
    });
  });
  addEventListener("storage", (event) => event.key === "theme" && apply(read()));
})();
