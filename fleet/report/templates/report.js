"use strict";
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const places = Array.from(document.querySelectorAll("[data-figure]"));
  const chooser = document.getElementById("network");
  let selected = "";

  // Tokens such as @ink stand for the page's own colours, light or dark.
  function painted(value, key, colour) {
    if (Array.isArray(value)) return value.map((item) => painted(item, key, colour));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, painted(item, name, colour)]));
    }
    return typeof value === "string" && value[0] === "@" && key.endsWith("color") ? colour(value.slice(1)) : value;
  }

  function highlight(trace, mode) {
    if (selected && trace.meta && trace.meta.network && trace.meta.network !== selected) {
      if (mode === "only") trace.visible = false;
      else trace.opacity = 0.1;
    }
    if (selected && trace.meta && trace.meta.networks) {
      trace.marker.opacity = trace.meta.networks.map((network) => (network === selected ? 1 : 0.1));
    }
    return trace;
  }

  function thin(axis) {
    axis.nticks = 5;
    while (axis.dtick && (axis.range[1] - axis.range[0]) / axis.dtick > 8) axis.dtick *= 2;
  }

  function draw(place) {
    const style = getComputedStyle(document.documentElement);
    const figure = painted(figures[place.dataset.figure], "", (name) => style.getPropertyValue("--" + name).trim());
    const narrow = place.clientWidth < 560;
    figure.layout.font.family = getComputedStyle(document.body).fontFamily;
    figure.layout.dragmode = narrow ? false : "zoom";
    if (narrow) thin(figure.layout.xaxis);
    const traces = figure.data.map((trace) => highlight(trace, place.dataset.select));
    Plotly.react(place, traces, figure.layout, { responsive: true, displayModeBar: false });
  }

  function select(network) {
    selected = network;
    if (chooser) chooser.value = network;
    document.querySelectorAll("[data-network]").forEach((button) => {
      button.setAttribute("aria-pressed", String(network !== "" && button.dataset.network === network));
    });
    places.forEach(draw);
  }

  function compare(a, b) {
    if (a === "" || b === "") return (a === "") - (b === ""); // unknown values stay last
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, undefined, { numeric: true }) : x - y;
  }

  function sort(table, column, head) {
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const body = table.tBodies[0];
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const rows = Array.from(body.rows).sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return x === "" || y === "" || ascending ? compare(x, y) : compare(y, x);
    });
    body.append(...rows);
  }

  document.querySelectorAll("table.sortable").forEach((table) => {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.addEventListener("click", () => sort(table, column, head));
      head.replaceChildren(button);
    });
  });
  document.querySelectorAll("[data-network]").forEach((button) => {
    button.addEventListener("click", () => select(button.dataset.network === selected ? "" : button.dataset.network));
  });
  if (chooser) chooser.addEventListener("change", () => select(chooser.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => places.forEach(draw));
  places.forEach(draw);
})();
