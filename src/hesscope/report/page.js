(() => {
  "use strict";
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const heat = [[0, "#000004"], [0.13, "#180f3d"], [0.25, "#440f76"], [0.38, "#721f81"], [0.5, "#9e2f7f"],
    [0.63, "#cd4071"], [0.75, "#f1605d"], [0.87, "#fd9668"], [0.95, "#feca8d"], [1, "#fcfdbf"]];

  // Specifications name their colours ("@measured"), so that one figure serves both themes.
  const resolve = (value) => {
    if (value === "@heat") return heat;
    if (typeof value === "string" && value.startsWith("@")) return colour(value.slice(1));
    if (Array.isArray(value)) return value.map(resolve);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item)]));
    }
    return value;
  };

  const axis = () => ({ gridcolor: colour("grid"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true });
  const complete = (layout, height) => {
    const made = resolve(layout);
    return { ...made, height, margin: { l: 64, r: 44, t: 14, b: 52 }, paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("ink"), family: "system-ui, sans-serif", size: 13 },
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, dragmode: "zoom",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("link"), orientation: "v" },
      xaxis: { ...axis(), ...made.xaxis }, yaxis: { ...axis(), ...made.yaxis } };
  };
  const config = { displaylogo: false, responsive: true,
    // Named one by one: by default there is a button that uploads the figure.
    modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d"], ["zoom2d", "pan2d"], ["toImage"]],
    toImageButtonOptions: { format: "svg" } };

  const figures = [...document.querySelectorAll(".figure")].map((place) => {
    const spec = JSON.parse(document.getElementById(place.id + "-data").textContent);
    return { place, spec, shown: 0, buttons: [...document.querySelectorAll(`[data-figure="${place.id}"]`)] };
  });
  const draw = (figure) => {
    const view = figure.spec.views[figure.shown];
    figure.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === figure.shown)));
    return Plotly.react(figure.place, resolve(view.data), complete(view.layout, figure.spec.height), config);
  };

  // Arrow keys pan, + and - zoom, 0 and Escape show everything again.
  const keyboard = (figure) => (event) => {
    const full = figure.place._fullLayout;
    if (event.target !== figure.place || !full || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: ["xaxis", -0.1], ArrowRight: ["xaxis", 0.1], ArrowUp: ["yaxis", 0.1], ArrowDown: ["yaxis", -0.1] };
    const update = {};
    if (moves[event.key]) {
      const [name, share] = moves[event.key];
      const [a, b] = full[name].range;
      update[name + ".range"] = [a + share * (b - a), b + share * (b - a)];
    } else if (event.key === "+" || event.key === "=" || event.key === "-") {
      const shrink = event.key === "-" ? -0.15 : 0.1;
      for (const name of ["xaxis", "yaxis"]) {
        const [a, b] = full[name].range;
        update[name + ".range"] = [a + shrink * (b - a), b - shrink * (b - a)];
      }
    } else if (event.key === "0" || event.key === "Escape") {
      event.preventDefault();
      draw(figure).then(() => Plotly.relayout(figure.place, original(figure)));
      return;
    } else return;
    event.preventDefault();
    Plotly.relayout(figure.place, update);
  };
  const original = (figure) => {
    const layout = figure.spec.views[figure.shown].layout;
    const update = {};
    for (const name of ["xaxis", "yaxis"]) {
      if (layout[name] && layout[name].range) update[name + ".range"] = layout[name].range.slice();
      else update[name + ".autorange"] = true;
    }
    return update;
  };

  const paint = () => Promise.all(figures.map(draw));
  const theme = (name) => {
    root.dataset.theme = name;
    const button = document.getElementById("theme");
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
    return paint();
  };
  for (const figure of figures) {
    figure.buttons.forEach((button, i) => button.addEventListener("click", () => { figure.shown = i; draw(figure); }));
    figure.place.addEventListener("keydown", keyboard(figure));
  }
  const prefers = window.matchMedia("(prefers-color-scheme: dark)");
  document.getElementById("theme").addEventListener("click", () => theme(root.dataset.theme === "dark" ? "light" : "dark"));
  prefers.addEventListener("change", (event) => theme(event.matches ? "dark" : "light"));
  theme(prefers.matches ? "dark" : "light").then(() => { root.dataset.ready = "true"; });
})();
