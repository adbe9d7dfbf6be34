(() => {
  "use strict";
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const heat = ["#000004", "#180f3d", "#440f76", "#721f81", "#9e2f7f", "#cd4071", "#f1605d", "#fd9668", "#feca8d", "#fcfdbf"]
    .map((ink, i) => [i / 9, ink]);

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
  // What a cell of a heat map says: both names, the norm, and its share of the largest one.
  const spoken = (trace) => {
    if (!trace.names) return trace;
    const largest = Math.max(...trace.customdata.map((row) => Math.max(...row))) || 1;
    const cell = (a, b, norm) => `${a} × ${b}<br>‖H_ij‖ = ${Number(norm.toPrecision(4))}<br>${(100 * norm / largest).toFixed(2)}% of the largest`;
    const text = trace.customdata.map((row, i) => row.map((norm, j) => cell(trace.names[i], trace.names[j], norm)));
    const { names, customdata, ...rest } = trace;
    return { ...rest, text };
  };
  const draw = (figure) => {
    const view = figure.spec.views[figure.shown];
    figure.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === figure.shown)));
    const { square, ...layout } = complete(view.layout, figure.spec.height);
    // A square map is as wide as it is high, with room for names and the colour bar. Plotly keeps the old shape of
    // axes that are tied to each other, so such a figure starts afresh.
    if (square) {
      layout.width = Math.min(figure.place.clientWidth, figure.spec.height + 170);
      Plotly.purge(figure.place);
    }
    return Plotly.react(figure.place, resolve(view.data).map(spoken), layout, config);
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
