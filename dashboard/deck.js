// A deck of cards to decide on: one large card with the next ones already loaded, or a grid of which many are marked at once.
// A key press shows the next card at once; decisions go to Python in order and are kept here until it has seen them.
// Captions and keys of the corpus are set as text, never as HTML.

const KEYS = { g: "good", b: "bad", u: "unsure" };
const decks = new WeakMap();

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = text;
  return made;
}

class Deck {
  constructor(component) {
    this.root = element("div", "deck");
    this.root.tabIndex = -1;
    component.parentElement.appendChild(this.root);
    this.nonce = Math.random().toString(36).slice(2);
    this.sequence = 0;
    this.latencies = [];
    this.listen = (event) => this.pressed(event);
    window.addEventListener("keydown", this.listen);
  }

  // New data of a run of the page; what is on the screen stays where it is.
  update(component) {
    this.component = component;
    const data = component.data;
    if (this.token !== data.token) this.restart(data);
    this.data = data;
    this.outbox = this.outbox.filter((decision) => data.seen[this.nonce] === undefined || decision.n > data.seen[this.nonce]);
    const lost = data.items.filter((item) => item.kept && !this.known.has(item.id));
    for (const item of data.items) if (!lost.includes(item)) this.learn(item);
    this.draw();
    if (lost.length) this.tell(); // a new page in an old session: Python takes for known what another page had
  }

  learn(item) {
    const before = this.known.get(item.id);
    if (!before) this.order.push(item.id);
    const mark = this.marks.has(item.id) ? this.marks.get(item.id) : item.mark;
    this.known.set(item.id, { ...before, ...item, mark, view: before?.view });
    this.preload(item.id);
  }

  restart(data) {
    Object.assign(this, { token: data.token, order: [], known: new Map(), marks: new Map(), selected: new Set(), outbox: [] });
    Object.assign(this, { at: 0, history: [], anchor: null, drawnIds: "" });
  }

  // The picture of a card, made and decoded before it is needed.
  preload(id) {
    const item = this.known.get(id);
    if (item.view) return;
    if (item.problem) {
      item.view = element("div", "absent", item.problem);
    } else {
      item.view = element(item.video ? "video" : "img");
      if (item.video) Object.assign(item.view, { muted: true, loop: true, autoplay: true, playsInline: true, controls: true });
      else item.view.alt = "";
      item.view.src = item.src;
      if (!item.video) item.view.decode().catch(() => {});
    }
  }

  send(ids, mark) {
    this.outbox.push({ n: ++this.sequence, ids, mark });
    this.tell();
  }

  // Decisions that have not been seen yet, and which pictures need not come again.
  tell() {
    this.component.setStateValue("decisions", { nonce: this.nonce, list: this.outbox, have: [...this.known.keys()].slice(-100) });
  }

  pressed(event) {
    const target = event.composedPath()[0];
    if (event.ctrlKey || event.metaKey || event.altKey || !this.root.isConnected) return;
    if (target instanceof HTMLElement && (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable)) return;
    const key = event.key.toLowerCase();
    const started = event.timeStamp;
    let done = true;
    if (KEYS[key]) this.decide(KEYS[key], started);
    else if (key === "z") this.undo();
    else if (this.data.many && key === "a") this.selectAll();
    else if (this.data.many && key === "escape") this.select([]);
    else if (!this.data.many && (key === "n" || key === "arrowright")) this.skip();
    else done = false;
    if (done) event.preventDefault();
  }

  decide(mark, started) {
    const ids = this.data.many ? [...this.selected] : this.order.slice(this.at, this.at + 1);
    if (!ids.length) return;
    this.history.push({ ids, before: ids.map((id) => this.known.get(id).mark ?? null), at: this.at });
    for (const id of ids) this.remember(id, mark);
    if (this.data.many) this.selected.clear();
    else this.at += 1;
    this.draw();
    this.send(ids, mark);
    this.measure(started);
  }

  remember(id, mark) {
    this.marks.set(id, mark);
    this.known.get(id).mark = mark;
  }

  undo() {
    const last = this.history.pop();
    if (!last) return;
    last.ids.forEach((id, place) => this.remember(id, last.before[place]));
    this.at = last.at;
    if (this.data.many) this.selected = new Set(last.ids);
    this.draw();
    this.send(last.ids, "undo");
  }

  skip() {
    const id = this.order[this.at];
    if (id === undefined) return;
    this.history.push({ ids: [], before: [], at: this.at });
    this.at += 1;
    this.draw();
    this.send([id], "skip");
  }

  select(ids) {
    this.selected = new Set(ids);
    this.draw();
  }

  selectAll() {
    this.select(this.selected.size === this.data.items.length ? [] : this.data.items.map((item) => item.id));
  }

  // A click on a card of the grid; with Shift everything from the one before.
  clicked(id, event) {
    const ids = this.data.items.map((item) => item.id);
    if (event.shiftKey && this.anchor !== null && ids.includes(this.anchor)) {
      const [from, to] = [ids.indexOf(this.anchor), ids.indexOf(id)].sort((a, b) => a - b);
      ids.slice(from, to + 1).forEach((one) => this.selected.add(one));
    } else if (!this.selected.delete(id)) {
      this.selected.add(id);
    }
    this.anchor = id;
    this.draw();
  }

  // Milliseconds from the key to the next picture on the screen, for whoever measures.
  async measure(started) {
    const picture = this.root.querySelector(".stage img");
    if (picture) await picture.decode().catch(() => {});
    requestAnimationFrame(() => setTimeout(() => {
      this.latencies.push(performance.now() - started);
      this.root.dataset.latencies = this.latencies.slice(-500).map((ms) => ms.toFixed(1)).join(" ");
    }));
  }

  draw() {
    if (this.data.many) this.drawMany();
    else this.drawOne();
    this.root.dataset.waiting = this.outbox.length;
  }

  drawOne() {
    const item = this.known.get(this.order[this.at]);
    const stage = element("div", "stage");
    if (item) {
      stage.append(item.view);
      stage.dataset.id = item.id;
      if (item.video) item.view.play?.().catch(() => {});
    } else {
      stage.append(element("div", "absent", this.data.left > 0 ? "Loading …" : "Every row of this queue is decided."));
    }
    const side = element("div", "side");
    side.append(element("div", "caption", item ? item.caption || "(no caption)" : ""), element("div", "line", item ? item.line : ""));
    side.append(this.buttons(["good", "bad", "unsure"], Boolean(item)));
    side.append(element("div", "help", "g good · b bad · u unsure · → later · z undo"));
    side.append(this.progress());
    const both = element("div", "one");
    both.append(stage, side);
    this.root.replaceChildren(both);
  }

  progress() {
    const fresh = [...this.marks.entries()].filter(([id, mark]) => mark && !this.data.decided.includes(id)).length;
    const done = Math.min(this.data.total, this.data.done + fresh);
    const box = element("div", "progress");
    const bar = element("div", "bar");
    bar.style.width = `${this.data.total ? (100 * done) / this.data.total : 0}%`;
    box.append(bar);
    const words = element("div", "line", `${done} of ${this.data.total} decided`);
    const both = element("div");
    both.append(box, words);
    return both;
  }

  buttons(marks, enabled) {
    const row = element("div", "buttons");
    for (const mark of marks) {
      const button = element("button", mark, mark);
      button.disabled = !enabled;
      button.onclick = (event) => this.decide(mark, event.timeStamp);
      row.append(button);
    }
    const undo = element("button", "", "undo");
    undo.disabled = !this.history.length;
    undo.onclick = () => this.undo();
    row.append(undo);
    return row;
  }

  drawMany() {
    const bar = element("div", "tools");
    bar.append(this.buttons(["good", "bad", "unsure"], this.selected.size > 0));
    const all = element("button", "", "select all");
    all.onclick = () => this.selectAll();
    bar.firstChild.append(all);
    const help = this.selected.size ? `${this.selected.size} selected · g b u mark them` : "click cards to select them · a all · z undo";
    bar.append(element("div", "help", help));
    const ids = this.data.items.map((item) => item.id).filter((id) => this.known.has(id)).join(" ");
    if (ids !== this.drawnIds || !this.grid) {
      this.grid = element("div", "grid");
      for (const item of this.data.items) if (this.known.has(item.id)) this.grid.append(this.card(this.known.get(item.id)));
      this.drawnIds = ids;
    }
    for (const card of this.grid.children) {
      const item = this.known.get(card.dataset.id);
      card.classList.toggle("selected", this.selected.has(item.id));
      card.dataset.mark = item.mark || "";
      card.querySelector(".mark").textContent = item.mark || "";
    }
    this.root.replaceChildren(bar, this.grid);
  }

  card(item) {
    const card = element("div", "card");
    card.dataset.id = item.id;
    card.title = item.caption || "";
    card.append(item.view, element("div", "mark"), element("div", "words", item.caption || "(no caption)"));
    if (item.captions > 1) card.append(element("div", "several", `${item.captions} captions`));
    const foot = element("div", "foot");
    foot.append(element("span", "line", item.line));
    for (const [name, words, sign] of [["like", "more like this", "≈"], ["open", "open", "↗"]]) {
      if (name === "like" && !item.encoded) continue;
      const button = element("button", name, sign);
      button.title = words;
      button.setAttribute("aria-label", words);
      button.onclick = (event) => {
        event.stopPropagation();
        this.component.setTriggerValue(name, item.id);
      };
      foot.append(button);
    }
    card.append(foot);
    card.onclick = (event) => this.clicked(item.id, event);
    return card;
  }

  end() {
    window.removeEventListener("keydown", this.listen);
    this.root.remove();
  }
}

export default function (component) {
  let deck = decks.get(component.parentElement);
  if (!deck) {
    deck = new Deck(component);
    decks.set(component.parentElement, deck);
  }
  deck.update(component);
  return () => {
    deck.end();
    decks.delete(component.parentElement);
  };
}
