// The page without this script shows every run; with it one at a time, plots, filters and a comparison.
const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function made(tag, options = {}, ...children) {
  const node = Object.assign(document.createElement(tag), options);
  node.append(...children);
  return node;
}

// ---- plots

const drawable = (value, log) => value !== null && value !== undefined && (!log || value > 0);

function rowsOf(panel, run, slot) {
  return run.seeds.flatMap(({ seed, limits, [panel.axis]: columns }) =>
    (columns[panel.key] ?? []).flatMap((y, at) =>
      drawable(y, panel.log)
        ? [{ x: columns[panel.axis][at], y, limit: limits[panel.limit] ?? null, run: run.name, seed, slot,
             colour: run.colour, shape: run.shape }]
        : []));
}

function left(panel, runs) {
  const values = runs.flatMap((run) => run.seeds.flatMap((own) => own[panel.axis][panel.key] ?? []));
  return values.filter((value) => value !== null && !drawable(value, panel.log)).length;
}

async function draw(place, runs, axis) {
  for (const panel of data.panels.filter((panel) => panel.axis === axis)) {
    const rows = runs.flatMap(rowsOf.bind(null, panel));
    if (!rows.length) continue;
    const box = made("div");
    const missing = left(panel, runs) ? ` (${left(panel, runs)} values of 0 are off the scale)` : "";
    const label = `${panel.title} by ${axis}: ${runs.map((run) => run.name).join(" and ")}`;
    const plot = made("figure", { className: "plot" }, made("figcaption", { textContent: panel.title + missing }), box);
    place.append(plot);
    const limited = rows.some((row) => row.limit !== null);
    const layer = limited ? panel.spec.layer : panel.spec.layer.slice(-2); // the lines and the points
    await vegaEmbed(box, { ...panel.spec, layer, datasets: { rows } }, { renderer: "svg", actions: false });
    box.setAttribute("role", "img"); // in place of Vega's own
    box.setAttribute("aria-label", label);
  }
}

function fill(article) {
  if (article.dataset.drawn) return;
  article.dataset.drawn = "yes";
  const run = data.runs[article.dataset.run];
  all(".plots", article).forEach((place) => draw(place, [run], place.dataset.axis));
}

// ---- one run at a time

const articles = all("article.run");

function show(article, { focus = false } = {}) {
  articles.forEach((other) => { other.hidden = other !== article; });
  if (by("shown")) by("shown").value = article.id;
  fill(article);
  if (focus) {
    article.focus({ preventScroll: true });
    by("evidence").scrollIntoView();
  }
}

function follow() {
  const article = articles.find((one) => `#${one.id}` === location.hash);
  if (article) show(article, { focus: true });
}

function step(by_) {
  const at = articles.findIndex((article) => !article.hidden);
  location.hash = articles[(at + by_ + articles.length) % articles.length].id;
}

// ---- filters

function filter() {
  const chosen = all("[data-filter]").filter((select) => select.value);
  const fits = (row) => chosen.every((select) => row.dataset[select.dataset.filter].split("|").includes(select.value));
  const rows = all(".run-row");
  rows.forEach((row) => { row.hidden = !fits(row); });
  const kept = rows.filter((row) => !row.hidden);
  all("tr.setting").forEach((row) => {
    row.hidden = !kept.some((one) => one.dataset.setting === row.dataset.setting);
  });
  by("count").textContent = kept.length === rows.length ? `${rows.length} runs` : `${kept.length} of ${rows.length} runs`;
  by("none").hidden = kept.length > 0;
}

// ---- comparison

function compare() {
  const runs = [by("one"), by("other")].map((select) => data.runs[select.value]);
  const head = made("tr", {}, made("th", { scope: "col" }, made("span", { className: "unseen", textContent: "Number" })),
    ...runs.map((run, slot) => made("th", { scope: "col", textContent: `${run.name} · ${run.setting}`,
      style: `border-bottom: 3px ${slot ? "dashed" : "solid"} ${run.colour}` })));
  const facts = Object.keys(runs[0].facts).map((name) => {
    const texts = runs.map((run) => run.facts[name]);
    return made("tr", { className: texts[0] === texts[1] ? "" : "differs" },
      made("th", { scope: "row", textContent: name }), ...texts.map((textContent) => made("td", { textContent })));
  });
  const table = made("table", { className: "plain" }, made("thead", {}, head), made("tbody", {}, ...facts));
  const [layers, epochs] = [0, 1].map(() => made("div", { className: "plots" }));
  [layers.dataset.axis, epochs.dataset.axis] = ["layer", "epoch"];
  by("comparison").replaceChildren(table, made("h3", { textContent: "At every layer" }), layers,
    made("h3", { textContent: "Over training" }), epochs);
  draw(layers, runs, "layer");
  draw(epochs, runs, "epoch");
}

// ---- downloads

function save(name, type, text) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  made("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}

function csvOf(run) {
  const lines = ["axis,seed,at,quantity,value"];
  for (const { seed, ...own } of run.seeds)
    for (const axis of ["layer", "epoch"])
      for (const [name, values] of Object.entries(own[axis]))
        if (name !== axis) values.forEach((value, at) => lines.push([axis, seed, own[axis][axis][at], name, value ?? ""].join()));
  return `${lines.join("\n")}\n`;
}

function svgOf(article) {
  // One file of all plots, with plain colours in place of those of the page.
  const style = getComputedStyle(document.documentElement);
  const probe = document.body.appendChild(made("i"));
  const plain = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  const plots = all(".plot", article).map((plot) => [plot.querySelector("figcaption").textContent, plot.querySelector("svg")]);
  let y = 0;
  const parts = plots.map(([title, svg]) => {
    const [width, height] = ["width", "height"].map((side) => Number(svg.getAttribute(side)));
    const text = made("p", { textContent: title }).innerHTML;
    const part = `<text y="${y + 14}" font-size="12" font-family="sans-serif">${text}</text>` +
      `<svg y="${y + 20}" width="${width}" height="${height}" viewBox="${svg.getAttribute("viewBox")}">${svg.innerHTML}</svg>`;
    y += height + 36;
    return part;
  });
  const drawn = parts.join("").replace(/var\((--[\w-]+)\)/g, (_, name) => plain(name)).replaceAll("currentColor", plain("--text"));
  probe.remove();
  return `<svg xmlns="http://www.w3.org/2000/svg" width="480" height="${y}" fill="${style.color}">${drawn}</svg>`;
}

// ---- everything together

for (const article of articles) {
  const run = data.runs[article.dataset.run];
  article.querySelector(".csv").addEventListener("click", () => save(`${run.id}.csv`, "text/csv", csvOf(run)));
  article.querySelector(".svg").addEventListener("click", () => save(`${run.id}.svg`, "image/svg+xml", svgOf(article)));
  article.querySelector(".against")?.addEventListener("click", () => {
    by("one").value = article.dataset.run;
    if (by("other").value === by("one").value) by("other").value = article.dataset.run === "0" ? "1" : "0";
    compare();
    location.hash = "compare";
    by("other").focus({ preventScroll: true });
  });
}
all("a.image").forEach((link) => { link.href = link.closest("figure").querySelector("img").src; });
all("[data-filter]").forEach((select) => select.addEventListener("change", filter));
by("reset")?.addEventListener("click", () => {
  all("[data-filter]").forEach((select) => { select.value = ""; });
  filter();
});
by("shown")?.addEventListener("change", (event) => { location.hash = event.target.value; });
by("previous")?.addEventListener("click", () => step(-1));
by("next")?.addEventListener("click", () => step(1));
["one", "other"].forEach((id) => by(id)?.addEventListener("change", compare));
addEventListener("hashchange", follow);

const night = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;
const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : night.matches);
const name = () => { by("theme").textContent = dark() ? "Light" : "Dark"; };
by("theme").addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
night.addEventListener("change", name);
name();

show(articles[0]);
follow();
// Two runs side by side once somebody comes near them.
if (by("compare")) {
  const seen = new IntersectionObserver(([entry]) => {
    if (!entry.isIntersecting) return;
    seen.disconnect();
    if (!by("comparison").children.length) compare();
  });
  seen.observe(by("compare"));
}
