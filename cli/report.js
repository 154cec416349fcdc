"use strict";
(() => {
  const plot = document.getElementById("plot");
  if (plot) {
    const figure = JSON.parse(document.getElementById("figure").textContent);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const draw = () => {
      const ink = dark.matches ? "#d7dae0" : "#23272f", grid = dark.matches ? "#333a46" : "#e3e6eb";
      const layout = structuredClone(figure.layout);
      Object.assign(layout, { paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: ink } });
      for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key)))
        Object.assign(layout[name], { gridcolor: grid, linecolor: grid, zerolinecolor: grid });
      Plotly.react(plot, figure.data, layout, { responsive: true, displayModeBar: false });
    };
    draw();
    dark.addEventListener("change", draw);
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
