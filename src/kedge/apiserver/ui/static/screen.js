// Screen: the cells of a terminal, changed by what a program writes (ECMA-48, xterm's common modes).
//
// It knows nothing of the page, so that it can be tested alone. Text arrives in pieces that may end
// anywhere; a sequence that is cut is kept until the rest comes.

const MOST_SCROLLBACK = 1000;
const MOST_PARAMETERS = 16;
const LONGEST_SEQUENCE = 4096;
const LINE_DRAWING = Object.fromEntries([..."`afgjklmnopqrstuvwxyz{|}~"].map((from, at) => [from, [..."◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"][at]]));
const PLAIN = Object.freeze({ fg: null, bg: null, bold: false, underline: false, inverse: false });

export class Screen {
  /** `reply` gets what the terminal answers to a program's questions. */
  constructor(columns, rows, reply = () => {}) {
    this.columns = columns;
    this.rows = rows;
    this.reply = reply;
    this._pending = "";
    this.reset();
  }

  reset() {
    this.x = this.y = 0;
    this.style = PLAIN;
    this.top = 0;
    this.bottom = this.rows - 1;
    this.lines = this._blankScreen();
    this.scrollback = [];
    this.saved = null;
    this.other = null;
    this.modes = { wrap: true, cursor: true, applicationKeys: false, bracketedPaste: false, insert: false };
    this._wrapNext = false;
    this._drawing = false;
  }

  resize(columns, rows) {
    columns = Math.max(2, columns);
    rows = Math.max(1, rows);
    if (columns === this.columns && rows === this.rows) return;
    while (this.lines.length > rows) {
      const first = this.lines.shift();
      if (!this.other) this._keep(first);
      this.y = Math.max(0, this.y - 1);
    }
    this.columns = columns;
    this.rows = rows;
    while (this.lines.length < rows) this.lines.push(this._blankLine());
    for (const line of this.lines) {
      line.length = Math.min(line.length, columns);
      while (line.length < columns) line.push(blank(PLAIN));
    }
    this.top = 0;
    this.bottom = rows - 1;
    this.x = Math.min(this.x, columns - 1);
    this.y = Math.min(this.y, rows - 1);
  }

  /** Return a line as text, without blanks at its end. */
  text(row) {
    return this.lines[row].map((cell) => cell.text).join("").trimEnd();
  }

  write(text) {
    text = this._pending + text;
    this._pending = "";
    let at = 0;
    while (at < text.length) {
      const code = text.charCodeAt(at);
      if (code === 0x1b) {
        const length = this._escape(text.slice(at, at + LONGEST_SEQUENCE));
        if (length === 0) {
          this._pending = text.slice(at).slice(0, LONGEST_SEQUENCE);
          return;
        }
        at += length;
      } else if (code < 0x20 || code === 0x7f) {
        this._control(code);
        at += 1;
      } else {
        const sign = String.fromCodePoint(text.codePointAt(at));
        this._put(sign);
        at += sign.length;
      }
    }
  }

  _control(code) {
    if (code === 8) this.x = Math.max(0, this.x - 1);
    else if (code === 9) this.x = Math.min(this.columns - 1, (Math.floor(this.x / 8) + 1) * 8);
    else if (code >= 10 && code <= 12) this._lineFeed();
    else if (code === 13) this.x = 0;
    else if (code === 14 || code === 15) this._drawing = code === 14 && this._g1;
    if (code !== 7) this._wrapNext = false;
  }

  _put(sign) {
    if (this._wrapNext && this.modes.wrap) {
      this.x = 0;
      this._lineFeed();
    }
    this._wrapNext = false;
    const line = this.lines[this.y];
    if (this.modes.insert) {
      line.splice(this.x, 0, blank(this.style));
      line.length = this.columns;
    }
    line[this.x] = { text: this._drawing ? (LINE_DRAWING[sign] ?? sign) : sign, style: this.style };
    if (this.x < this.columns - 1) this.x += 1;
    else this._wrapNext = true;
  }

  _lineFeed() {
    if (this.y === this.bottom) this._scrollUp(1);
    else this.y = Math.min(this.rows - 1, this.y + 1);
  }

  _scrollUp(count) {
    for (let i = 0; i < Math.min(count, this.rows); i++) {
      const [gone] = this.lines.splice(this.top, 1);
      if (this.top === 0 && !this.other) this._keep(gone);
      this.lines.splice(this.bottom, 0, this._blankLine());
    }
  }

  _scrollDown(count) {
    for (let i = 0; i < Math.min(count, this.rows); i++) {
      this.lines.splice(this.bottom, 1);
      this.lines.splice(this.top, 0, this._blankLine());
    }
  }

  _keep(line) {
    this.scrollback.push(line);
    if (this.scrollback.length > MOST_SCROLLBACK) this.scrollback.shift();
  }

  _blankLine() {
    return Array.from({ length: this.columns }, () => blank(this.style ?? PLAIN));
  }

  _blankScreen() {
    return Array.from({ length: this.rows }, () => this._blankLine());
  }

  // Sequences. Each returns its length; 0 if it is not complete.

  _escape(text) {
    const next = text[1];
    if (next === undefined) return 0;
    if (next === "[") return this._csi(text);
    if (next === "]" || next === "P" || next === "^" || next === "_") return this._string(text);
    if (next === "(" || next === ")") {
      if (text.length < 3) return 0;
      if (next === "(") this._drawing = text[2] === "0";
      else this._g1 = text[2] === "0";
      return 3;
    }
    if (next === "#" || next === " " || next === "%") return text.length < 3 ? 0 : 3;
    this._wrapNext = false;
    if (next === "7") this._save();
    else if (next === "8") this._restore();
    else if (next === "D") this._lineFeed();
    else if (next === "E") { this.x = 0; this._lineFeed(); }
    else if (next === "M") { if (this.y === this.top) this._scrollDown(1); else this.y = Math.max(0, this.y - 1); }
    else if (next === "c") this.reset();
    return 2;
  }

  /** Titles and other texts for the terminal, which are ignored. */
  _string(text) {
    const end = /\x07|\x1b\\/.exec(text.slice(2));
    if (end) return 2 + end.index + end[0].length;
    return text.length >= LONGEST_SEQUENCE ? text.length : 0;
  }

  _csi(text) {
    const match = /^\x1b\[([<-?]?)([0-9;:]*)([ -/]*)([@-~])/.exec(text);
    if (!match) return /^\x1b\[[<-?]?[0-9;:]*[ -/]*$/.test(text) && text.length < 128 ? 0 : 2;
    const [whole, prefix, parameters, , final] = match;
    const numbers = parameters.split(/[;:]/).slice(0, MOST_PARAMETERS).map((each) => Math.min(Number(each || 0), 65535));
    if (prefix === "?") this._mode(numbers, final === "h", final);
    else if (!prefix) this._command(final, numbers);
    return whole.length;
  }

  _command(final, numbers) {
    const n = Math.max(1, numbers[0]);
    const line = this.lines[this.y];
    this._wrapNext = false;
    const bound = (value, low, high) => Math.max(low, Math.min(high, value));
    switch (final) {
      case "A": this.y = bound(this.y - n, this.y >= this.top ? this.top : 0, this.rows - 1); break;
      case "B": case "e": this.y = bound(this.y + n, 0, this.y <= this.bottom ? this.bottom : this.rows - 1); break;
      case "C": case "a": this.x = bound(this.x + n, 0, this.columns - 1); break;
      case "D": this.x = bound(this.x - n, 0, this.columns - 1); break;
      case "E": this.x = 0; this.y = bound(this.y + n, 0, this.bottom); break;
      case "F": this.x = 0; this.y = bound(this.y - n, this.top, this.rows - 1); break;
      case "G": case "`": this.x = bound(n - 1, 0, this.columns - 1); break;
      case "d": this.y = bound(n - 1, 0, this.rows - 1); break;
      case "H": case "f": this.y = bound(n - 1, 0, this.rows - 1); this.x = bound((numbers[1] || 1) - 1, 0, this.columns - 1); break;
      case "J": this._eraseScreen(numbers[0]); break;
      case "K": this._eraseLine(numbers[0]); break;
      case "L": this._within(() => this._scrollDown(n)); break;
      case "M": this._within(() => this._scrollUp(n)); break;
      case "S": this._scrollUp(n); break;
      case "T": this._scrollDown(n); break;
      case "@": line.splice(this.x, 0, ...this._blanks(n)); line.length = this.columns; break;
      case "P": line.splice(this.x, n); line.push(...this._blanks(this.columns - line.length)); break;
      case "X": for (let x = this.x; x < bound(this.x + n, 0, this.columns); x++) line[x] = blank(this.style); break;
      case "m": this._graphics(numbers); break;
      case "r": this.top = bound(n - 1, 0, this.rows - 1); this.bottom = bound((numbers[1] || this.rows) - 1, this.top, this.rows - 1); this.x = this.y = 0; break;
      case "s": this._save(); break;
      case "u": this._restore(); break;
      case "n": if (numbers[0] === 6) this.reply(`\x1b[${this.y + 1};${this.x + 1}R`); else if (numbers[0] === 5) this.reply("\x1b[0n"); break;
      case "c": this.reply("\x1b[?6c"); break;
      case "h": case "l": if (numbers[0] === 4) this.modes.insert = final === "h"; break;
    }
  }

  _blanks(count) {
    return Array.from({ length: Math.max(0, Math.min(count, this.columns)) }, () => blank(this.style));
  }

  /** Scroll the lines from the cursor to the bottom; those above stay, and none is kept. */
  _within(scroll) {
    if (this.y < this.top || this.y > this.bottom) return;
    const [top, other] = [this.top, this.other];
    this.top = this.y;
    this.other ??= [];
    scroll();
    this.top = top;
    this.other = other;
    this.x = 0;
  }

  _eraseScreen(how) {
    const [from, to] = how === 0 ? [this.y + 1, this.rows] : how === 1 ? [0, this.y] : [0, this.rows];
    for (let row = from; row < to; row++) this.lines[row] = this._blankLine();
    if (how < 2) this._eraseLine(how);
    if (how === 3) this.scrollback = [];
  }

  _eraseLine(how) {
    const [from, to] = how === 0 ? [this.x, this.columns] : how === 1 ? [0, this.x + 1] : [0, this.columns];
    for (let x = from; x < to; x++) this.lines[this.y][x] = blank(this.style);
  }

  _save() {
    this.saved = { x: this.x, y: this.y, style: this.style };
  }

  _restore() {
    if (!this.saved) return;
    this.x = Math.min(this.saved.x, this.columns - 1);
    this.y = Math.min(this.saved.y, this.rows - 1);
    this.style = this.saved.style;
  }

  _mode(numbers, on, final) {
    if (final !== "h" && final !== "l") return;
    for (const each of numbers) {
      if (each === 1) this.modes.applicationKeys = on;
      else if (each === 7) this.modes.wrap = on;
      else if (each === 25) this.modes.cursor = on;
      else if (each === 2004) this.modes.bracketedPaste = on;
      else if (each === 47 || each === 1047 || each === 1049) this._alternate(on, each === 1049);
      else if (each === 1048) on ? this._save() : this._restore();
    }
  }

  /** Change to the second screen, which full-screen programs use, or back. */
  _alternate(on, saves) {
    if (on === Boolean(this.other)) return;
    if (on) {
      if (saves) this._save();
      this.other = this.lines;
      this.lines = this._blankScreen();
      return;
    }
    this.lines = this.other;
    this.other = null;
    const { columns, rows } = this;
    this.lines = this.lines.slice(0, rows);
    while (this.lines.length < rows) this.lines.push(this._blankLine());
    for (const line of this.lines) while (line.length < columns) line.push(blank(PLAIN));
    if (saves) this._restore();
  }

  _graphics(numbers) {
    for (let at = 0; at < numbers.length; at++) {
      const n = numbers[at];
      const set = (change) => (this.style = Object.freeze({ ...this.style, ...change }));
      if (n === 0) this.style = PLAIN;
      else if (n === 1) set({ bold: true });
      else if (n === 4) set({ underline: true });
      else if (n === 7) set({ inverse: true });
      else if (n === 22) set({ bold: false });
      else if (n === 24) set({ underline: false });
      else if (n === 27) set({ inverse: false });
      else if (n >= 30 && n <= 37) set({ fg: n - 30 });
      else if (n >= 40 && n <= 47) set({ bg: n - 40 });
      else if (n >= 90 && n <= 97) set({ fg: n - 82 });
      else if (n >= 100 && n <= 107) set({ bg: n - 92 });
      else if (n === 39) set({ fg: null });
      else if (n === 49) set({ bg: null });
      else if (n === 38 || n === 48) {
        const [color, used] = extended(numbers.slice(at + 1));
        set(n === 38 ? { fg: color } : { bg: color });
        at += used;
      }
    }
  }
}

function blank(style) {
  return { text: " ", style: style.bg === null && !style.inverse ? PLAIN : style };
}

/** Return a colour of 256, or of three bytes, and how many numbers name it. */
function extended([kind, first, green, blue]) {
  if (kind === 2) return [`rgb(${first & 255}, ${green & 255}, ${blue & 255})`, 4];
  if (kind !== 5) return [null, 1];
  if (first < 16) return [first, 2];
  if (first >= 232) {
    const gray = 8 + (first - 232) * 10;
    return [`rgb(${gray}, ${gray}, ${gray})`, 2];
  }
  const level = (value) => (value ? 55 + value * 40 : 0);
  const n = first - 16;
  return [`rgb(${level(Math.floor(n / 36))}, ${level(Math.floor(n / 6) % 6)}, ${level(n % 6)})`, 2];
}
