"use strict";
// Sorting: every column title becomes a button. Filtering: a search field over every longer table.
const FILTER_FROM_ROWS = 8;

function sortKey(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
}

function compare(a, b, sign) {
  const aIsNumber = typeof a === "number", bIsNumber = typeof b === "number";
  if (aIsNumber !== bIsNumber) return aIsNumber ? -1 : 1; // rows without a number come last, up or down
  return sign * (aIsNumber ? a - b : a.localeCompare(b, "en", { numeric: true }));
}

function sortBy(table, header) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const key = (row) => sortKey(row, header.cellIndex);
  body.append(...[...body.rows].sort((x, y) => compare(key(x), key(y), descending ? -1 : 1)));
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const header of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    button.addEventListener("click", () => sortBy(table, header));
    header.replaceChildren(button);
  }
  if (table.tBodies[0].rows.length < FILTER_FROM_ROWS) continue;
  const label = document.createElement("label");
  const field = document.createElement("input");
  label.className = "filter";
  field.type = "search";
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  label.append("Show rows with ", field);
  table.parentElement.before(label);
}
