// <k-terminal>: a shell in a container.

import { open, path } from "./session.js";
import { Screen } from "./screen.js";

const CHANNEL = { input: 0, output: 1, error: 2, status: 3, size: 4 };
const KEYS = { Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", Delete: "\x1b[3~", Insert: "\x1b[2~", PageUp: "\x1b[5~", PageDown: "\x1b[6~" };
const ARROWS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
// A shell that people like, if the image has one.
const COMMAND = ["sh", "-c", "TERM=xterm-256color; export TERM; if command -v bash >/dev/null; then exec bash; fi; exec sh"];

class Terminal extends HTMLElement {
  connectedCallback() {
    if (this._view) return;
    this._view = document.createElement("pre");
    this._view.className = "screen";
    this._view.setAttribute("aria-hidden", "true");
    this._input = document.createElement("textarea");
    this._input.className = "keyboard";
    this._input.setAttribute("aria-label", "Input of the shell. Ctrl+Shift+Tab leaves it.");
    this._input.autocapitalize = "off";
    this._input.spellcheck = false;
    this._said = document.createElement("p");
    this._said.setAttribute("role", "status");
    this._said.className = "dim";
    this.append(this._view, this._input, this._said);
    this.addEventListener("click", () => getSelection().isCollapsed && this._input.focus());
    this._input.addEventListener("keydown", (event) => this._key(event));
    this._input.addEventListener("input", () => this._typed());
    this._input.addEventListener("paste", (event) => this._paste(event));
    this._resize = new ResizeObserver(() => this._fit());
    this._resize.observe(this._view);
    this._begin();
  }

  disconnectedCallback() {
    this._resize?.disconnect();
    this._socket?.close();
    this._socket = null;
  }

  /** The container, as `namespace/pod/container`. Another one begins another shell. */
  set target(target) {
    if (this._target === target) return;
    this._target = target;
    if (this._view) this._begin();
  }

  /** The lines of the screen, for tests and for copying. */
  get text() {
    return this._screen?.lines.map((_, row) => this._screen.text(row)).join("\n") ?? "";
  }

  _begin() {
    this._socket?.close();
    const { columns, rows } = this._size();
    this._screen = new Screen(columns, rows, (text) => this._send(text));
    this._decoder = new TextDecoder();
    this._draw();
    const [namespace, pod, container] = this._target.split("/");
    const query = [["container", container], ["stdin", "true"], ["stdout", "true"], ["tty", "true"], ...COMMAND.map((word) => ["command", word])];
    const socket = (this._socket = open(path("v1", "pods", namespace, pod, "exec"), query, "v5.channel.k8s.io"));
    socket.binaryType = "arraybuffer";
    this._said.textContent = "Connecting …";
    socket.onopen = () => {
      this._said.textContent = "";
      this._tellSize();
      this._input.focus();
    };
    socket.onmessage = ({ data }) => this._received(new Uint8Array(data));
    socket.onclose = () => {
      if (socket !== this._socket) return;
      this._said.textContent = `${this._said.textContent || "The shell has ended."} Press Enter for another one.`;
      this._socket = null;
    };
  }

  _received(bytes) {
    const content = bytes.subarray(1);
    if (bytes[0] === CHANNEL.output || bytes[0] === CHANNEL.error) {
      this._screen.write(this._decoder.decode(content, { stream: true }));
      this._soon();
    } else if (bytes[0] === CHANNEL.status) {
      const status = JSON.parse(new TextDecoder().decode(content));
      if (status.status !== "Success") this._said.textContent = `${status.message}.`;
    }
  }

  _send(text, channel = CHANNEL.input) {
    if (this._socket?.readyState !== WebSocket.OPEN) return;
    const content = new TextEncoder().encode(text);
    const message = new Uint8Array(content.length + 1);
    message[0] = channel;
    message.set(content, 1);
    this._socket.send(message);
  }

  // Input.

  _key(event) {
    if (!this._socket && event.key === "Enter") {
      event.preventDefault();
      this._begin();
      return;
    }
    if (event.key === "Tab" && event.ctrlKey) return;
    const text = this._sequence(event);
    if (text === null) return;
    event.preventDefault();
    this._send(text);
  }

  _sequence(event) {
    if (event.isComposing || event.metaKey) return null;
    if (ARROWS[event.key]) return `\x1b${this._screen.modes.applicationKeys ? "O" : "["}${ARROWS[event.key]}`;
    if (event.ctrlKey && !event.shiftKey && event.key.length === 1) {
      const code = event.key.toUpperCase().charCodeAt(0) & 0x1f;
      return /[@-_a-z ]/i.test(event.key) ? String.fromCharCode(code) : null;
    }
    if (event.ctrlKey) return null;
    if (KEYS[event.key]) return KEYS[event.key];
    if (event.key.length === 1) return event.altKey ? `\x1b${event.key}` : event.key;
    return null;
  }

  /** Keyboards of phones send no keys, only what they made of them. */
  _typed() {
    this._send(this._input.value);
    this._input.value = "";
  }

  _paste(event) {
    event.preventDefault();
    const text = event.clipboardData.getData("text").replaceAll("\n", "\r");
    this._send(this._screen.modes.bracketedPaste ? `\x1b[200~${text}\x1b[201~` : text);
  }

  // Size.

  _size() {
    const probe = document.createElement("span");
    probe.textContent = "MMMMMMMMMM";
    this._view.append(probe);
    const box = probe.getBoundingClientRect();
    probe.remove();
    const columns = Math.floor((this._view.clientWidth - 16) / (box.width / 10 || 8));
    const rows = Math.floor((this._view.clientHeight - 16) / (box.height || 18));
    return { columns: Math.max(20, Math.min(500, columns)), rows: Math.max(5, Math.min(200, rows)) };
  }

  _fit() {
    if (!this._screen) return;
    const { columns, rows } = this._size();
    if (columns === this._screen.columns && rows === this._screen.rows) return;
    this._screen.resize(columns, rows);
    this._tellSize();
    this._soon();
  }

  _tellSize() {
    this._send(JSON.stringify({ Width: this._screen.columns, Height: this._screen.rows }), CHANNEL.size);
  }

  // Drawing.

  _soon() {
    this._frame ??= requestAnimationFrame(() => {
      this._frame = null;
      this._draw();
    });
  }

  _draw() {
    const { lines, x, y, modes } = this._screen;
    this._view.replaceChildren(...lines.map((line, row) => this._line(line, modes.cursor && row === y ? x : -1)));
  }

  _line(line, cursor) {
    const row = document.createElement("div");
    let run = null;
    line.forEach((cell, at) => {
      const isCursor = at === cursor;
      if (!run || isCursor || run.isCursor || run.style !== cell.style) {
        run = { style: cell.style, isCursor, node: document.createElement("span") };
        dress(run.node, cell.style, isCursor);
        row.append(run.node);
      }
      run.node.append(cell.text);
    });
    return row;
  }
}

function dress(node, style, isCursor) {
  let { fg, bg } = style;
  if (style.inverse !== isCursor) [fg, bg] = [bg ?? "ground", fg ?? "ink"];
  paint(node, "fg", "color", fg);
  paint(node, "bg", "backgroundColor", bg);
  if (style.bold) node.classList.add("bold");
  if (style.underline) node.classList.add("underline");
}

function paint(node, prefix, property, color) {
  if (color === null) return;
  if (typeof color === "number" || color === "ground" || color === "ink") node.classList.add(`${prefix}-${color}`);
  else node.style[property] = color;
}

customElements.define("k-terminal", Terminal);
