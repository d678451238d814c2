// Lines of logs as the page shows them. Containers write what they like, so nothing of a line is obeyed.

const LONGEST_LINE = 8000;
/** Sequences for terminals: with a final letter, with a text up to its end, or of two characters. */
const SEQUENCES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g;
/** Control characters but the tab; those that turn the direction of writing. */
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;
const DIRECTIONS = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Return a line without sequences for terminals, and what comes after its last carriage return. Other
 *  control characters become visible. */
export function shownLine(line) {
  const last = line.replace(/\r+$/, "").replace(/^[^]*\r/, "");
  const text = last.slice(0, LONGEST_LINE * 2).replace(SEQUENCES, "").replace(CONTROLS, picture).replace(DIRECTIONS, "\ufffd");
  const rest = text.length - LONGEST_LINE + Math.max(0, last.length - LONGEST_LINE * 2);
  return text.length > LONGEST_LINE ? `${text.slice(0, LONGEST_LINE)} … (${rest} more characters)` : text;
}

function picture(character) {
  const code = character.charCodeAt(0);
  return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : "\ufffd";
}
