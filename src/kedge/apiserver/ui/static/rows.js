// <k-rows>: a table that draws only the rows in view, so that thousands scroll smoothly.

import { html, render, repeat } from "./lit.js";

const ROW_PIXELS = 40;
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
    this.addEventListener("scroll", () => this._draw(), { passive: true });
    this.addEventListener("keydown", (event) => this._move(event));
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

  _draw() {
    if (!this._window || !this._content) return;
    const { items, row, key, label } = this._content;
    if (label) this.setAttribute("aria-label", label);
    const height = this.clientHeight || 600;
    const first = Math.max(0, Math.floor(this.scrollTop / ROW_PIXELS) - SPARE_ROWS);
    const last = Math.min(items.length, Math.ceil((this.scrollTop + height) / ROW_PIXELS) + SPARE_ROWS);
    this._space.style.height = `${items.length * ROW_PIXELS}px`;
    this._window.style.transform = `translateY(${first * ROW_PIXELS}px)`;
    const shown = items.slice(first, last).map((item, at) => ({ item, at: first + at }));
    render(
      html`${repeat(shown, ({ item }) => key(item), ({ item, at }) => html`<div class="row" role="row" aria-rowindex=${at + 2}>${row(item)}</div>`)}`,
      this._window,
    );
  }

  /** j and k, or the arrow keys, move the focus from row to row. */
  _move(event) {
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const links = [...this.querySelectorAll(".row a")];
    const at = links.indexOf(document.activeElement);
    const next = links[at + step] ?? links[0];
    if (next) {
      next.focus({ preventScroll: true });
      next.closest(".row").scrollIntoView({ block: "nearest" });
      event.preventDefault();
    }
  }
}

customElements.define("k-rows", Rows);

/** Draw a table: `columns` are `{label, class}`, the rest as in `content`. */
export function table(columns, content) {
  return html`<div class="table" role="table" aria-label=${content.label} aria-rowcount=${content.items.length + 1}>
    <div role="rowgroup"><div class="row head" role="row" aria-rowindex="1">${columns.map((each) => html`<div role="columnheader" class=${each.class ?? ""}>${each.label}</div>`)}</div></div>
    <k-rows .content=${content}></k-rows>
  </div>`;
}
