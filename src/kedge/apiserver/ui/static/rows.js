// <k-rows>: a table that draws only the rows in view, so that thousands scroll smoothly.

import { guard, html, render, repeat } from "./lit.js";

const ROW_PIXELS = 40;
/** On a phone a row has two lines. */
const PHONE_ROW_PIXELS = 72;
const PHONE = matchMedia("(max-width: 640px)");
const SPARE_ROWS = 8;

class Rows extends HTMLElement {
  connectedCallback() {
    if (this._window) return;
    this.tabIndex = 0;
    this.setAttribute("role", "rowgroup");
    this._window = document.createElement("div");
    this._window.className = "rows-window";
    this._window.setAttribute("role", "presentation");
    const space = document.createElement("div");
    space.className = "rows-space";
    space.setAttribute("role", "presentation");
    space.append(this._window);
    this._space = space;
    this.append(space);
    this.addEventListener("scroll", () => this._draw(true), { passive: true });
    this._resize = new ResizeObserver(() => this._draw());
    this._resize.observe(this);
    this._draw();
  }

  disconnectedCallback() {
    this._resize?.disconnect();
  }

  /** `items` are the rows, `row(item)` returns the cells of one, `key(item)` its identity. */
  set content(content) {
    this._content = content;
    this._draw();
  }

  /** Draw the rows in view. If the page was only scrolled, those that were in view already stay. */
  _draw(scrolled = false) {
    if (!this._window || !this._content) return;
    const { items, row, key, label } = this._content;
    if (label) this.setAttribute("aria-label", label);
    const height = this.clientHeight || 600;
    const pixels = PHONE.matches ? PHONE_ROW_PIXELS : ROW_PIXELS;
    const first = Math.max(0, Math.floor(this.scrollTop / pixels) - SPARE_ROWS);
    const last = Math.min(items.length, Math.ceil((this.scrollTop + height) / pixels) + SPARE_ROWS);
    this._space.style.height = `${items.length * pixels}px`;
    this._window.style.transform = `translateY(${first * pixels}px)`;
    if (scrolled && first === this._first && last === this._last) return;
    Object.assign(this, { _first: first, _last: last });
    const shown = items.slice(first, last).map((item, at) => ({ item, at: first + at }));
    render(
      html`${repeat(shown, ({ item }) => key(item), ({ item, at }) => html`<div class="row" role="row" aria-rowindex=${at + 2}>${guard([item], () => row(item))}</div>`)}`,
      this._window,
    );
  }

  /** Move the focus to the first link of another row. */
  move(step) {
    const links = [...this.querySelectorAll(".row")].map((row) => row.querySelector("a")).filter(Boolean);
    const at = links.findIndex((each) => each.closest(".row") === document.activeElement.closest(".row"));
    const next = at < 0 ? links[0] : links[at + step];
    if (!next) return false;
    next.focus({ preventScroll: true });
    next.closest(".row").scrollIntoView({ block: "nearest" });
    return true;
  }
}

customElements.define("k-rows", Rows);

/** Draw the head of a column. A column with `sort` is a button; `ascends` is its order
 *  until it is reversed; `sorted` says how the rows are sorted. */
function head({ label, class: style = "", sort, ascends = false }, sorted) {
  if (!sort || !sorted) return html`<div role="columnheader" class=${style}>${label}</div>`;
  const order = sorted.key !== sort ? "none" : sorted.reversed === ascends ? "descending" : "ascending";
  return html`<div role="columnheader" class=${style} aria-sort=${order}><button class="sort" @click=${() => sorted.by(sort)}>${label}<span aria-hidden="true">${{ none: "", ascending: " ▴", descending: " ▾" }[order]}</span></button></div>`;
}

/** Draw a table: `columns` are `{label, class, sort, ascends}`, the rest as in `content`. */
export function table(columns, content) {
  return html`<div class="table" role="table" aria-label=${content.label} aria-rowcount=${content.items.length + 1}>
    <div role="rowgroup"><div class="row head" role="row" aria-rowindex="1">${columns.map((each) => head(each, content.sorted))}</div></div>
    <k-rows .content=${content}></k-rows>
  </div>`;
}
