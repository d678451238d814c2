// Course: the usage of a pod or node over the last day, asked for now and then while a page shows it.

import { get } from "./session.js";
import { changed } from "./redraw.js";

export class Course {
  constructor(interval) {
    this._interval = interval;
    this._clear("");
  }

  _clear(key) {
    this._state = { key, asked: 0, document: null, missing: "" };
  }

  /** Follow the object with this identity, at this path, and return its newest document; null if there
   *  is none yet. */
  of(key, target) {
    if (this._state.key !== key) this._clear(key);
    const state = this._state;
    if (Date.now() - state.asked >= this._interval) {
      state.asked = Date.now();
      get(target, { history: "true" }).then((document) => this._take(state, document), (error) => this._fail(state, error));
    }
    return state.document;
  }

  /** Why there is nothing to draw; empty if there is something, or if it is not known yet. */
  get missing() {
    return this._state.missing;
  }

  _take(state, document) {
    state.document = document;
    const known = document.history ?? document.containers?.some((each) => each.history);
    state.missing = known ? "" : "The node does not tell the course of the last day.";
    changed();
  }

  _fail(state, error) {
    state.missing = error.code === 404 ? "" : error.message;
    changed();
  }
}
