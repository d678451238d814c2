// Watch: the objects of one resource, kept up to date by the server.

import { get, open } from "./session.js";
import { changed } from "./redraw.js";

const LONGEST_WAIT_MS = 5000;

export class Watch {
  /** `target` is the path of a list; `query` selects; `prepare` makes of an object what is kept. */
  constructor(target, query = {}, prepare = withoutManagers) {
    this.target = target;
    this.query = query;
    this.items = new Map();
    this.state = "loading";
    this.error = null;
    this.version = 0;
    this.listeners = new Set();
    this._prepare = prepare;
    this._failures = 0;
    this._begin();
  }

  get all() {
    return [...this.items.values()];
  }

  get(namespace, name) {
    return this.items.get(`${namespace ?? ""}/${name}`);
  }

  stop() {
    this._stopped = true;
    clearTimeout(this._timer);
    this._socket?.close();
  }

  async _begin() {
    try {
      const list = await get(this.target, this.query);
      if (this._stopped) return;
      this.items = new Map((list.items ?? []).map((item) => [keyOf(item), this._prepare(item)]));
      this._from = list.metadata.resourceVersion;
      this.error = null;
      this._note("live");
      for (const item of this.items.values()) this._tell("ADDED", item);
      this._follow();
    } catch (error) {
      if (this._stopped) return;
      this.error = error;
      this._note(error.code === 403 || error.code === 404 ? "refused" : "retrying");
      this._later(() => this._begin());
    }
  }

  _follow() {
    let received = 0;
    const query = { ...this.query, watch: "true", resourceVersion: this._from, allowWatchBookmarks: "true", pretty: "false" };
    const socket = (this._socket = open(this.target, query, "events.kedge"));
    socket.onmessage = (message) => {
      received += 1;
      this._failures = 0;
      this._take(JSON.parse(message.data));
    };
    socket.onclose = () => {
      if (this._stopped) return;
      // A refusal has no status here. The list that follows has one.
      if (received && !this._expired) this._later(() => this._follow());
      else this._later(() => this._begin());
      this._expired = false;
    };
  }

  _take({ type, object }) {
    if (type === "ERROR") {
      this._expired = true;
      this._socket.close();
      return;
    }
    this._from = object.metadata.resourceVersion;
    if (type === "BOOKMARK") return;
    const key = keyOf(object);
    const item = this._prepare(object);
    if (type === "DELETED") this.items.delete(key);
    else this.items.set(key, item);
    this._tell(type, item);
    this._note("live");
  }

  _tell(type, item) {
    for (const listener of this.listeners) listener(type, item);
  }

  _note(state) {
    this.state = state;
    this.version += 1;
    changed();
  }

  _later(act) {
    const wait = Math.min(LONGEST_WAIT_MS, 300 * 2 ** this._failures++) * (0.5 + Math.random() / 2);
    this._timer = setTimeout(() => this._stopped || act(), wait);
  }
}

function keyOf(item) {
  return `${item.metadata.namespace ?? ""}/${item.metadata.name}`;
}

function withoutManagers(item) {
  delete item.metadata.managedFields;
  return item;
}
