"use strict";
// Sorting: every column title becomes a button. Filtering: a search field over every longer table.
// Each entry learns its column's title, which stands beside it where the screen is too narrow for columns.
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

function markSorted(header, descending) {
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
}

function sortBy(table, header) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  markSorted(header, descending);
  const body = table.tBodies[0];
  const key = (row) => sortKey(row, header.cellIndex);
  body.append(...[...body.rows].sort((x, y) => compare(key(x), key(y), descending ? -1 : 1)));
}

function makeSortable(header, onSort) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...header.childNodes);
  button.addEventListener("click", onSort);
  header.replaceChildren(button);
}

function addFilter(table) {
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

for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  const titles = headers.map((header) => header.textContent);
  for (const header of headers) makeSortable(header, () => sortBy(table, header));
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, place) => (cell.dataset.title = titles[place]));
  table.classList.add("cards");
  if (table.tBodies[0].rows.length >= FILTER_FROM_ROWS) addFilter(table);
}
