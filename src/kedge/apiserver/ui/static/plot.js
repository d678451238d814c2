// <k-plot>: one uPlot, which follows the theme and the width of the page.
/* global uPlot */

const HEIGHT = 190;
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);

class Plot extends HTMLElement {
  connectedCallback() {
    this._resize = new ResizeObserver(() => this._fit());
    this._resize.observe(this);
    this._retheme = () => this._make();
    document.addEventListener("theme", this._retheme);
    this._scheme = matchMedia("(prefers-color-scheme: dark)");
    this._scheme.addEventListener("change", this._retheme);
    if (!this._readout) {
      this._readout = document.createElement("p");
      this._readout.className = "readout";
      this._readout.setAttribute("aria-hidden", "true");
      this.append(this._readout);
    }
    this._make();
  }

  disconnectedCallback() {
    this._resize.disconnect();
    document.removeEventListener("theme", this._retheme);
    this._scheme.removeEventListener("change", this._retheme);
    this._plot?.destroy();
    this._plot = null;
  }

  /** `lines`: `{label, color, values, width, dash, fill}`; `times`: seconds since the epoch; `marks`:
   *  `{time, color}`; `show`: a number as text; `range`: first and last time; `label`: what it is. */
  set content(content) {
    const same = this._content && this._content.lines.length === content.lines.length;
    this._content = content;
    this.setAttribute("role", "img");
    this.setAttribute("aria-label", content.label);
    if (!this.isConnected) return;
    if (!same || !this._plot) this._make();
    else this._plot.setData(this._data());
  }

  _data() {
    return [this._content.times, ...this._content.lines.map((each) => each.values)];
  }

  _clock(seconds) {
    const [first, last] = this._content.range;
    const parts = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(last - first <= 120 ? { second: "2-digit" } : {}) };
    return new Date(seconds * 1000).toLocaleTimeString([], parts);
  }

  _fit() {
    const width = this.clientWidth;
    if (this._plot && width) this._plot.setSize({ width, height: HEIGHT });
  }

  _make() {
    this._plot?.destroy();
    this._plot = null;
    if (!this._content) return;
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: color("dim"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 }, font: "11px system-ui" };
    this._plot = new uPlot(
      {
        width: this.clientWidth || 400,
        height: HEIGHT,
        legend: { show: false },
        // The plots of a page show the values of the same moment.
        cursor: { y: false, drag: { x: false, y: false }, sync: { key: "kedge" } },
        scales: {
          x: { time: true, range: () => this._content.range },
          y: { range: (_plot, _low, high) => [0, (high || 1) * 1.1] },
        },
        axes: [
          { ...axis, space: 70, size: 30, values: (_plot, ticks) => ticks.map((each) => this._clock(each)) },
          { ...axis, size: 62, incrs: this._content.binary ? BINARY : undefined, values: (_plot, ticks) => ticks.map((each) => this._content.show(each)) },
        ],
        series: [
          {},
          ...this._content.lines.map((each) => ({
            label: each.label,
            stroke: color(each.color),
            width: each.width ?? 1.5,
            dash: each.dash,
            fill: each.fill ? `${color(each.color)}22` : undefined,
            points: { show: false },
            spanGaps: false,
          })),
        ],
        hooks: { draw: [(plot) => this._marks(plot, color)], setCursor: [(plot) => this._tell(plot)] },
      },
      this._data(),
      this,
    );
  }

  _marks(plot, color) {
    const { ctx, bbox } = plot;
    for (const { time, tone } of this._content.marks ?? []) {
      const x = plot.valToPos(time, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = color(tone);
      ctx.lineWidth = 1;
      ctx.setLineDash([3, 3]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.beginPath();
      ctx.moveTo(x - 4, bbox.top);
      ctx.lineTo(x + 4, bbox.top);
      ctx.lineTo(x, bbox.top + 7);
      ctx.fill();
      ctx.restore();
    }
  }

  /** Show the values under the pointer. */
  _tell(plot) {
    const at = plot.cursor.idx;
    const { lines, times, show } = this._content;
    const values = at === null || at === undefined ? [] : lines.filter((each) => !each.dash && each.values[at] !== null && each.values[at] !== undefined).map((each) => `${each.label} ${show(each.values[at])}`);
    this._readout.textContent = values.length ? `${new Date(times[at] * 1000).toLocaleTimeString()}  ${values.join("  ")}` : "";
  }
}

customElements.define("k-plot", Plot);
