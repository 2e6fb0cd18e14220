// The kernel explorer: the rows lie in a JSON element by column; what is shown is made anew at every choice.
(() => {
  const PAGE_ROWS = matchMedia("(max-width: 40rem)").matches ? 10 : 50;
  const LONG_NAME = 40;
  const FILTERS = ["gpu", "config", "phase", "class"];
  const START = "step_ns";
  const data = JSON.parse(document.getElementById("kernel-data").textContent);
  const form = document.getElementById("kernel-filters");
  const table = document.getElementById("kernels");
  const count = document.getElementById("kernel-count");
  const more = document.getElementById("kernel-more");
  const columns = new Map(data.columns.map((column) => [column.name, column]));
  let shown = PAGE_ROWS;

  const value = (column, row) => (column.words ? column.words[column.values[row]] : column.values[row]);
  const lower = columns.get("name").words.map((name) => name.toLowerCase());

  function text(number) {
    if (number === null) return "–";
    const size = Math.abs(number);
    if (size >= 1000) return Math.round(number).toLocaleString("en");
    return size > 0 && size < 0.001 ? number.toExponential(1) : String(Number(number.toPrecision(3)));
  }

  function titleOf(column) {
    const parts = [column.title];
    if (column.modelled) {
      const mark = document.createElement("em");
      mark.className = "modelled";
      mark.textContent = "modelled";
      parts.push(" ", mark);
    }
    return parts;
  }

  function element(name, ...content) {
    const made = document.createElement(name);
    made.append(...content);
    return made;
  }

  function option(value, label) {
    const made = element("option", label);
    made.value = value;
    return made;
  }

  function nameOf(full) {
    if (full.length <= LONG_NAME) return full;
    return element("details", element("summary", full)); // cut by the style sheet until it is opened
  }

  function cellOf(column, row) {
    const cell = element("td");
    const own = value(column, row);
    cell.dataset.title = column.title;
    if (column.words) {
      cell.append(column.name === "name" ? nameOf(own) : own || "–");
      if (column.name === "name") cell.className = "kernel";
    } else {
      cell.className = column.modelled ? "number modelled" : "number";
      cell.append(text(own));
    }
    return cell;
  }

  function chosenRows() {
    const wanted = FILTERS.filter((name) => columns.has(name) && form.elements[name].value !== "");
    const codes = wanted.map((name) => [columns.get(name).values, Number(form.elements[name].value)]);
    const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const names = columns.get("name").values;
    const rows = [];
    for (let row = 0; row < data.rows; row++) {
      const fits = codes.every(([values, code]) => values[row] === code);
      if (fits && words.every((word) => lower[names[row]].includes(word))) rows.push(row);
    }
    return rows;
  }

  function sorted(rows) {
    const column = columns.get(form.elements.sort.value);
    const sign = form.elements.ascending.checked ? 1 : -1;
    const key = (row) => {
      const own = value(column, row);
      return own === null ? "" : own; // without a value: last, up or down, as in every table
    };
    return rows.sort((a, b) => compare(key(a), key(b), sign) || a - b);
  }

  function show() {
    const rows = sorted(chosenRows());
    table.tBodies[0].replaceChildren(
      ...rows.slice(0, shown).map((row) => element("tr", ...data.columns.map((column) => cellOf(column, row)))),
    );
    const visible = Math.min(shown, rows.length);
    count.textContent = `${visible} of ${rows.length} matching kernels shown, ${data.rows} in all.`;
    more.hidden = visible === rows.length;
    const header = [...table.tHead.rows[0].cells][data.columns.findIndex(({ name }) => name === form.elements.sort.value)];
    markSorted(header, !form.elements.ascending.checked);
  }

  function sortByHeader(column) {
    const again = form.elements.sort.value === column.name;
    form.elements.ascending.checked = again ? !form.elements.ascending.checked : Boolean(column.words);
    form.elements.sort.value = column.name;
    shown = PAGE_ROWS;
    show();
  }

  for (const name of FILTERS) {
    const { words } = columns.get(name);
    const order = words.map((word, code) => [word, code]).sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
    form.elements[name].append(option("", "all"), ...order.map(([word, code]) => option(String(code), word)));
  }
  form.elements.sort.append(
    ...data.columns.map((column) => option(column.name, `${column.title}${column.modelled ? " (modelled)" : ""}`)),
  );
  const head = data.columns.map((column) => {
    const header = element("th", ...titleOf(column));
    header.scope = "col";
    header.title = column.meaning;
    if (!column.words) header.className = "number";
    makeSortable(header, () => sortByHeader(column));
    return header;
  });
  table.tHead.rows[0].replaceChildren(...head);
  document.getElementById("kernel-columns").append(
    ...data.columns.map((column) => element("div", element("dt", ...titleOf(column)), element("dd", column.meaning))),
  );
  const start = () => {
    for (const choice of form.elements.sort.options) choice.defaultSelected = choice.value === START;
    form.elements.sort.value = START;
    shown = PAGE_ROWS;
    show();
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const kind of ["input", "change"]) {
    form.addEventListener(kind, () => {
      shown = PAGE_ROWS;
      show();
    });
  }
  form.addEventListener("reset", () => setTimeout(start));
  more.addEventListener("click", () => {
    const first = table.tBodies[0].rows.length;
    shown += PAGE_ROWS * 4;
    show();
    const row = table.tBodies[0].rows[first];
    if (row) {
      row.tabIndex = -1;
      row.focus();
    }
  });
  start();
})();
