"use strict";
(() => {
  const root = document.documentElement;
  root.dataset.script = "";
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);

  // Theme: the system's until the reader chooses; a file opened from disk may have no storage.
  const remember = {
    get: () => { try { return localStorage.getItem("bcrl-theme"); } catch { return null; } },
    set: (theme) => { try { localStorage.setItem("bcrl-theme", theme); } catch { /* not kept, still applied */ } },
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const nameTheme = () => { byId("theme").textContent = isDark() ? "Light" : "Dark"; };
  const saved = remember.get();
  if (saved === "dark" || saved === "light") root.dataset.theme = saved;
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember.set(root.dataset.theme);
    nameTheme();
  });
  system.addEventListener("change", nameTheme);
  nameTheme();

  // Toggles: an element is hidden when its policy or its method is off.
  const off = { policy: new Set(), method: new Set() };
  const apply = () => {
    all("[data-policy], [data-method]").forEach((element) => {
      const { policy, method } = element.dataset;
      element.toggleAttribute("hidden", off.policy.has(policy) || off.method.has(method));
    });
    all("details.group").forEach((section) => {
      const owned = all("[data-policy], [data-method]", section);
      section.hidden = false;
      section.toggleAttribute("hidden", owned.length > 0 && owned.every((element) => element.closest("[hidden]")));
    });
  };
  all("[data-toggle]").forEach((button) => button.addEventListener("click", () => {
    const set = off[button.dataset.toggle];
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    if (on) set.delete(button.dataset.index); else set.add(button.dataset.index);
    apply();
  }));

  // Numbers under the pointer.
  const tip = byId("tip");
  const showTip = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth - 6 ? x - 14 - box.width : x + 14;
    tip.style.transform = `translate(${Math.max(6, left)}px, ${Math.max(6, y - box.height - 10)}px)`;
  };
  const hideTip = () => { tip.hidden = true; };
  all("[data-tip]").forEach((element) => {
    element.addEventListener("pointermove", (event) => showTip(element.dataset.tip, event.clientX, event.clientY));
    element.addEventListener("pointerleave", hideTip);
  });

  const format = (value) => {
    if (value === null) return "not finite";
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2).replace("e+", "e");
    return value.toLocaleString("en", { maximumSignificantDigits: 4 });
  };
  const bend = (value, scale) =>
    scale === "log" ? Math.log10(value) : scale === "signed log" ? Math.sign(value) * Math.log10(1 + Math.abs(value)) : value;
  const place = (value, [low, high, scale]) =>
    (bend(value, scale) - bend(low, scale)) / (bend(high, scale) - bend(low, scale));

  const figures = JSON.parse(byId("figures").textContent);
  all("[data-figure]").forEach((element) => {
    const figure = figures[Number(element.dataset.figure)];
    const area = element.querySelector(".area");
    const canvas = element.querySelector(".canvas");
    const cursor = element.querySelector(".cursor");
    const paths = all(".area .line", element);
    const nearest = (line, share) => {
      let best = 0;
      let gap = Infinity;
      line.x.forEach((x, index) => {
        const distance = Math.abs(place(x, figure.x) - share);
        if (distance < gap) { gap = distance; best = index; }
      });
      return best;
    };
    let shown = 0.5;
    const show = (share, y) => {
      shown = Math.min(1, Math.max(0, share));
      const lines = figure.lines.filter((_, index) => !paths[index].hasAttribute("hidden"));
      if (!lines.length) return;
      const longest = lines.reduce((a, b) => (b.x.length > a.x.length ? b : a));
      const at = longest.x[nearest(longest, shown)];
      const texts = lines.map((line) => `${line.name} ${format(line.y[nearest(line, place(at, figure.x))])}`);
      const box = area.getBoundingClientRect();
      cursor.hidden = false;
      cursor.style.left = `${100 * place(at, figure.x)}%`;
      showTip([`${figure.label} ${format(at)}`, ...texts].join("\n"), box.left + place(at, figure.x) * box.width, y);
    };
    const hide = () => { cursor.hidden = true; hideTip(); };
    canvas.addEventListener("pointermove", (event) => {
      const box = area.getBoundingClientRect();
      show((event.clientX - box.left) / box.width, event.clientY);
    });
    canvas.addEventListener("pointerleave", hide);
    canvas.addEventListener("blur", hide);
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
      if (!step) return;
      event.preventDefault();
      show(shown + step, area.getBoundingClientRect().top + 20);
    });
  });

  // Copy: the clipboard where the browser allows it, the old way where the page is a file it does not trust.
  byId("copy").addEventListener("click", async (event) => {
    const button = event.currentTarget;
    const source = byId(button.dataset.target);
    let done = false;
    try {
      await navigator.clipboard.writeText(source.textContent);
      done = true;
    } catch {
      getSelection().selectAllChildren(source);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Select and copy";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  // Paper shows everything that the reader left on, also what was folded away.
  addEventListener("beforeprint", () => all("details").forEach((element) => { element.open = true; }));
})();
