// Sorts and filters the verdicts, and opens the evidence that a link leads to. Without this script the page still shows everything.
const table = document.getElementById("runs");
const body = table.tBodies[0];
const headings = [...table.tHead.rows[0].cells];
const [filters, text, verdict, count] = ["filters", "text", "verdict", "count"].map((id) => document.getElementById(id));

function filter() {
  const words = text.value.toLowerCase().split(/\s+/);
  let shown = 0;
  for (const row of body.rows) {
    const content = row.textContent.toLowerCase();
    const fits = words.every((word) => content.includes(word));
    row.hidden = !fits || (verdict.value !== "" && row.dataset.verdict !== verdict.value);
    shown += row.hidden ? 0 : 1;
  }
  count.textContent = `${shown} of ${body.rows.length} runs`;
}

function compare(one, other) {
  const [a, b] = [one, other].map((cell) => cell.dataset.value);
  if (a === undefined) return one.textContent.localeCompare(other.textContent);
  // A missing value, written None, counts as the smallest.
  const value = (number) => (number === "None" ? -Infinity : Number(number));
  return value(a) < value(b) ? -1 : Number(value(a) > value(b));
}

function sort(column) {
  const heading = headings[column];
  const sign = heading.ariaSort === "ascending" ? -1 : 1;
  for (const other of headings) other.ariaSort = null;
  heading.ariaSort = sign === 1 ? "ascending" : "descending";
  const rows = [...body.rows].sort((one, other) => sign * compare(one.cells[column], other.cells[column]));
  body.append(...rows);
}

function open() {
  const target = document.getElementById(location.hash.slice(1));
  const evidence = target?.closest("details");
  if (!evidence) return;
  evidence.open = true;
  target.scrollIntoView();
}

headings.forEach((heading, column) => {
  const button = document.createElement("button");
  button.append(...heading.childNodes);
  heading.append(button);
  button.addEventListener("click", () => sort(column));
});
filters.hidden = false;
text.addEventListener("input", filter);
verdict.addEventListener("input", filter);
addEventListener("hashchange", open);
filter();
open();
