"use strict";
(() => {
  const plot = document.getElementById("plot");
  if (plot) {
    const figure = JSON.parse(document.getElementById("figure").textContent);
    const dark = matchMedia("(prefers-color-scheme: dark)"), narrow = matchMedia("(max-width: 40em)");
    const draw = () => {
      const ink = dark.matches ? "#d7dae0" : "#23272f", grid = dark.matches ? "#333a46" : "#e3e6eb";
      const layout = structuredClone(figure.layout);
      Object.assign(layout, { paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: ink } });
      if (narrow.matches) { // the names of the causes stand above, and the times of the axis are few
        const rows = figure.data.filter((trace) => trace.type === "bar").length * 20;
        Object.assign(layout, { height: layout.height + rows, margin: { l: 50, r: 5, t: 10 + rows, b: 50 } });
        layout.legend = { orientation: "h", x: 0, y: 1, yanchor: "bottom", entrywidthmode: "fraction", entrywidth: 1 };
      }
      for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key)))
        Object.assign(layout[name], { nticks: narrow.matches && name.startsWith("x") ? 3 : 0, gridcolor: grid, linecolor: grid, zerolinecolor: grid });
      Plotly.react(plot, figure.data, layout, { responsive: true, displayModeBar: false });
    };
    draw();
    for (const media of [dark, narrow]) media.addEventListener("change", draw);
  }
  const search = document.getElementById("search");
  if (!search) return;
  const rows = [...document.querySelectorAll("#requests tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const shown = document.getElementById("shown");
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let number = 0;
    rows.forEach((row, index) => {
      row.hidden = !words.every((word) => texts[index].includes(word));
      number += row.hidden ? 0 : 1;
    });
    shown.textContent = words.length ? `${number.toLocaleString("en")} of ${rows.length.toLocaleString("en")}` : "";
  };
  const linked = () => {
    const asked = new URLSearchParams(location.hash.slice(1)).get("q");
    if (asked !== null) search.value = asked;
    filter();
  };
  search.addEventListener("input", filter);
  addEventListener("hashchange", linked);
  linked();
})();
