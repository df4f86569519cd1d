// Shows the board: asks for the items that changed, puts them in place, and sends what a button or a key asks for.
// All HTML comes from the server, which escapes every text; what is put together here is text only.

const main = document.querySelector("#main");
const trouble = document.querySelector("#trouble");
const said = document.querySelector("#said");
const search = document.querySelector("#filter");
const nothing = document.querySelector("#nothing");

/* This browser: the secret of the address that opened the board becomes that of a session, which only this origin reads. At a
   server, a token is the session. */

let session = localStorage.getItem("session") ?? "";
async function enter() {
  // Another anchor is a place in the page.
  if (!/^#[0-9a-f]{64}$/.test(location.hash)) return false;
  const answer = await fetch("/open", { method: "POST", body: location.hash.slice(1) });
  if (answer.ok) localStorage.setItem("session", session = await answer.text());
  history.replaceState(null, "", "/");
  return true;
}
await enter();
addEventListener("hashchange", async () => { if (await enter()) go(new URL(location), false); });
const ask = (url, more = {}) => fetch(url, { signal: AbortSignal.timeout(15_000), ...more, headers: { authorization: `Bearer ${session}`, ...more.headers } });

let place = {};
let known = { epoch: "", version: 0 };
let asking = null;
let askAgain = false;
let title = "";

/* Places */

function placeOf(url) {
  const query = Object.fromEntries(url.searchParams);
  const screen = url.pathname === "/issue" ? "issue" : query.screen ?? "needs-you";
  const found = { screen };
  for (const name of ["id", "repository", "before"]) if (query[name]) found[name] = query[name];
  return found;
}

function go(url, remember) {
  place = placeOf(url);
  known = { epoch: "", version: 0 };
  for (const open of document.querySelectorAll("dialog[open]")) open.close("cancel");
  if (remember) history.pushState(null, "", url);
  main.replaceChildren();
  main.dataset.screen = place.screen;
  main.classList.toggle("past", Boolean(place.at));
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.screen === place.screen) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const where = document.querySelector("#where");
  where.textContent = document.querySelector("nav a[aria-current]")?.firstChild.textContent ?? "Issue";
  where.hidden = false;
  document.querySelector("nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  asking?.abort();
  asking = null;
  refresh();
}

/* Changes */

async function refresh() {
  if (signIn && session === "") return signedOut("");
  if (asking) { askAgain = true; return; }
  const mine = asking = new AbortController();
  const query = new URLSearchParams({ ...place, epoch: known.epoch, since: known.version });
  try {
    const answer = await ask(`/changes?${query}`, { signal: AbortSignal.any([mine.signal, AbortSignal.timeout(15_000)]) });
    if (answer.status === 401 && signIn) { if (mine === asking) signedOut(await answer.text()); return; }
    if (!answer.ok) throw new Error(await answer.text(), { cause: answer.status });
    const changes = await answer.json();
    if (mine !== asking) return;
    if (changes.actions !== undefined) document.querySelector("#actions").innerHTML = changes.actions;
    known = { epoch: changes.epoch, version: changes.version };
    title = changes.title;
    tell(document.querySelector("#title"), title);
    show(changes.lists);
    tell(trouble, changes.trouble ? `Not up to date: ${changes.trouble}` : "");
  } catch (error) {
    if (mine !== asking) return;
    if (!main.querySelector(".list")) main.replaceChildren();
    const silent = error.name === "TimeoutError" || error.message === "Failed to fetch" || error.name === "NetworkError";
    if (error.cause === 404) tell(trouble, error.message);
    else tell(trouble, `Not up to date: ${silent ? "the board does not answer. Is toft board still running?" : error.message}`);
  }
  asking = null;
  if (askAgain) { askAgain = false; refresh(); }
  countNeeded();
}

/* Signing in, at a server */

const signIn = document.querySelector("#sign-in");
const signOut = document.querySelector("#sign-out");
function signedOut(why) {
  localStorage.removeItem("session");
  session = "";
  asking?.abort();
  asking = null;
  main.replaceChildren();
  document.querySelector("#actions").replaceChildren();
  if (!signIn.hidden) return;
  tell(trouble, why);
  signIn.hidden = false;
  signOut.hidden = true;
  tell(document.querySelector("#title"), "");
  needed.hidden = true;
  signIn.querySelector("#provider, #token").focus();
}
async function signedIn(token) {
  const answer = await fetch("/open", { method: "POST", body: token });
  if (!answer.ok) return tell(trouble, await answer.text());
  localStorage.setItem("session", session = await answer.text());
  restart();
}
// With another session, everything is another.
function restart() {
  signIn.reset();
  signIn.hidden = true;
  signOut.hidden = session === "";
  tell(trouble, "");
  go(new URL(location), false);
}
async function signInAtProvider() {
  const send = (secret) => fetch("/sign-in", { method: "POST", body: secret });
  const begun = await send("");
  if (!begun.ok) return tell(trouble, await begun.text());
  const { secret, address, code } = await begun.json();
  signIn.querySelector("#provider-address").hidden = false;
  signIn.querySelector("#provider-code").textContent = code;
  // Only a page of the web is opened.
  if (/^https?:/.test(address)) signIn.querySelector("#provider-link").href = address;
  for (;;) {
    await new Promise((done) => setTimeout(done, 1500));
    const answer = await send(secret);
    if (answer.status === 202) continue;
    signIn.querySelector("#provider-address").hidden = true;
    return answer.ok ? signedIn(await answer.text()) : tell(trouble, await answer.text());
  }
}
if (signIn) {
  signOut.hidden = session === "";
  signIn.addEventListener("submit", (event) => { event.preventDefault(); signedIn(signIn.querySelector("#token").value.trim()); });
  signIn.querySelector("#provider")?.addEventListener("click", () => signInAtProvider().catch((error) => tell(trouble, error.message)));
  signOut.addEventListener("click", () => signedOut(""));
}
// Another tab opened the board anew, signed in or signed out.
addEventListener("storage", (event) => {
  if (event.key !== "session") return;
  session = event.newValue ?? "";
  if (signIn) restart();
  else refresh();
});

function tell(where, text) {
  where.textContent = text;
  where.hidden = text === "";
}

function show(lists) {
  const wanted = new Set(lists.map((list) => `list-${list.id}`));
  for (const child of [...main.children]) if (!wanted.has(child.id)) child.remove();
  let before = null;
  for (const { id, head, empty, set, order } of lists) {
    const list = document.getElementById(`list-${id}`) ?? newList(id);
    const next = before ? before.nextElementSibling : main.firstElementChild;
    if (list !== next) main.insertBefore(list, next);
    before = list;
    const rows = list.querySelector("ul");
    const heading = list.querySelector("h2");
    if (heading.innerHTML !== head) heading.innerHTML = head;
    heading.hidden = head === "";
    const items = new Map([...rows.children].map((row) => [row.dataset.key, row]));
    for (const [key, html] of set) {
      let row = items.get(key);
      if (!row) {
        row = document.createElement("li");
        row.dataset.key = key;
        row.tabIndex = -1;
        items.set(key, row);
        rows.append(row);
      }
      const focused = row.contains(document.activeElement) && document.activeElement !== row;
      row.innerHTML = html;
      if (focused) row.focus();
    }
    if (order) reorder(rows, items, order);
    const none = list.querySelector(".empty");
    none.textContent = rows.children.length ? "" : empty;
    none.hidden = none.textContent === "";
  }
  showColumns(lists);
  // An issue has a heading of its own.
  document.querySelector("#where").hidden = main.querySelector("h1") !== null;
  ages();
  filter();
}

// On a phone, the columns of the board are side by side: a button leads to each.
const columns = document.querySelector("#columns");
function showColumns(lists) {
  const all = lists.filter((list) => list.id.startsWith("column-"));
  columns.hidden = all.length === 0;
  const text = (list) => document.getElementById(`list-${list.id}`).querySelector("h2").innerText;
  while (columns.children.length > all.length) columns.lastChild.remove();
  while (columns.children.length < all.length) {
    const button = document.createElement("button");
    button.type = "button";
    button.addEventListener("click", () => document.getElementById(`list-${button.dataset.list}`).scrollIntoView({ inline: "start", block: "nearest" }));
    columns.append(button);
  }
  all.forEach((list, n) => {
    columns.children[n].dataset.list = list.id;
    if (columns.children[n].textContent !== text(list)) columns.children[n].textContent = text(list);
  });
}

function newList(id) {
  const list = document.createElement("section");
  list.id = `list-${id}`;
  list.className = "list";
  const heading = document.createElement("h2");
  const none = document.createElement("p");
  none.className = "empty";
  list.append(heading, none, document.createElement("ul"));
  return list;
}

function reorder(rows, items, order) {
  const wanted = new Set(order);
  for (const [key, row] of items) if (!wanted.has(key)) row.remove();
  let next = rows.firstElementChild;
  for (const key of order) {
    const row = items.get(key);
    if (row === next) next = next.nextElementSibling;
    else rows.insertBefore(row, next);
  }
}

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
function ages() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time[data-at]")) {
    const seconds = Math.max(0, Math.round((now - time.dataset.at) / 1000));
    const steps = [[86400, "d"], [3600, "h"], [60, "min"]];
    const step = steps.find(([length]) => seconds >= length);
    const text = step ? `${Math.floor(seconds / step[0])} ${step[1]} ago` : seconds < 10 ? "just now" : `${seconds} s ago`;
    if (time.textContent !== text) time.textContent = text;
    if (!time.title) time.title = exact.format(time.dataset.at);
  }
}

/* How much needs a person, whatever is shown. */
const needed = document.querySelector("#needed");
let neededVersion = { epoch: "", version: 0 };
async function countNeeded() {
  let count = document.querySelectorAll("#list-needs-you > ul > li").length;
  if (place.screen !== "needs-you") {
    try {
      const query = new URLSearchParams({ screen: "needs-you", epoch: neededVersion.epoch, since: neededVersion.version });
      const changes = await (await ask(`/changes?${query}`)).json();
      neededVersion = { epoch: changes.epoch, version: changes.version };
      const order = changes.lists.find((list) => list.id === "needs-you")?.order;
      if (!order) return;
      count = order.length;
    } catch { return; }
  } else {
    neededVersion = { epoch: "", version: 0 };
  }
  needed.textContent = count;
  needed.hidden = count === 0;
  document.title = `${count ? `(${count}) ` : ""}${title} · toft`;
}

/* Filter */

function filter() {
  const text = place.screen === "issue" ? "" : search.value.trim().toLowerCase();
  for (const row of main.querySelectorAll("li[data-key]")) row.hidden = text !== "" && !row.textContent.toLowerCase().includes(text);
  for (const node of main.querySelectorAll("board-graph svg a")) {
    node.classList.toggle("dim", text !== "" && !node.textContent.toLowerCase().includes(text));
  }
  const rows = main.querySelectorAll("li[data-key]").length;
  tell(nothing, text !== "" && rows > 0 && !main.querySelector("li[data-key]:not([hidden])") ? `Nothing here has "${search.value.trim()}". Esc shows everything.` : "");
}
search.addEventListener("input", filter);

/* Actions */

const dialog = document.querySelector("#ask");
const part = (name) => dialog.querySelector(`#ask-${name}`);

async function send(body) {
  // A landing may take long.
  const answer = await ask("/action", {
    method: "POST",
    signal: null,
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

// Asks for what the action needs, shows the command, and does it.
let opened = 0;
async function begin(asked, { label, about, asks, preview, comments = [], optional = false }) {
  // What is meant is what is shown now, whatever is shown later.
  const request = { place: { ...place }, ...asked };
  const mine = ++opened;
  part("title").textContent = about ? `${label}: ${about}` : label;
  part("line").textContent = request.line + comments.map(([at, text]) => ` --at '${at}' '${text.replaceAll("'", "'\\''")}'`).join("");
  part("label").hidden = !asks;
  part("label").querySelector("span").textContent = asks ?? "";
  part("said").value = unsent.get(sayer(request)) ?? "";
  part("said").required = Boolean(asks) && !optional;
  part("do").textContent = label;
  part("do").disabled = false;
  part("preview").hidden = !preview;
  part("comments").hidden = comments.length === 0;
  part("comments").replaceChildren(...comments.map(([at, text]) => {
    const row = document.createElement("li");
    row.textContent = `${at}: ${text}`;
    return row;
  }));
  if (preview) {
    part("preview").textContent = "Looking what would happen…";
    part("do").disabled = true;
    send({ ...request, preview: true }).then((answer) => {
      if (mine !== opened || !dialog.open) return;
      part("preview").textContent = answer.text.trim() || "Nothing would happen.";
      if (!answer.line) return;
      request.line = answer.line;
      part("line").textContent = answer.line;
      part("do").disabled = false;
      part("do").focus();
    }, (error) => { if (mine === opened) part("preview").textContent = error.message; });
  }
  said.textContent = "";
  dialog.returnValue = "";
  dialog.showModal();
  (asks ? part("said") : part("do")).focus();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  if (mine !== opened || dialog.returnValue !== "do") return false;
  return finish(request, part("said").value);
}

// What was typed and not taken, by what it was typed for: it is there again when that is asked again.
const unsent = new Map();
const sayer = ({ place, item, action }) => JSON.stringify([place.screen === "issue" ? place.id : "", item, action]);

async function finish(request, text) {
  // A title is one line.
  if (request.action === "n") text = text.replace(/\s+/g, " ");
  say(`${request.line}`, "running");
  try {
    const answer = await send({ ...request, said: text });
    say(answer.text.trim() || "Done.", answer.succeeded ? "good" : "bad");
    if (answer.succeeded) unsent.delete(sayer(request));
    else unsent.set(sayer(request), text);
    refresh();
    return answer.succeeded;
  } catch (error) {
    say(error.message, "bad");
    unsent.set(sayer(request), text);
    refresh();
    return false;
  }
}

let hide = 0;
function say(text, state) {
  said.textContent = text;
  said.className = state;
  clearTimeout(hide);
  if (state === "good") hide = setTimeout(() => { said.textContent = ""; }, 8000);
}
said.addEventListener("click", () => { said.textContent = ""; });
// Enter does it, Shift+Enter begins a line.
part("said").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  dialog.querySelector("form").requestSubmit(part("do"));
});

function press(button) {
  const { action, line, asks, about, preview } = button.dataset;
  const row = button.closest("li[data-key]");
  const request = { action, line };
  if (row) request.item = row.dataset.key;
  const label = button.dataset.label ?? button.textContent;
  const review = line.includes("review ") && (action === "r" || action === "a");
  const issue = review ? issueOf(row) : undefined;
  const drafts = issue ? Drafts.of(issue) : [];
  if (drafts.length > 0) {
    // Comments on lines go with the review, wherever that begins.
    Object.assign(request, { place: { ...issue, screen: "issue" }, item: issue.id, comments: drafts });
    begin(request, { label, about, asks, comments: drafts, optional: true })
      .then((done) => { if (done) Drafts.clear(issue); });
    return;
  }
  begin(request, { label, about, asks, preview: preview !== undefined });
}

// The issue that a row is about.
function issueOf(row) {
  if (place.screen === "issue") return { ...place };
  const link = row?.querySelector("a.id");
  return link ? placeOf(new URL(link.getAttribute("href"), location.origin)) : undefined;
}

/* Comments on lines that were not sent yet stay in this browser. */
const Drafts = {
  key: ({ repository, id }) => `drafts ${repository ?? ""} ${id}`,
  of(at) {
    try { return JSON.parse(localStorage.getItem(this.key(at)) ?? "[]"); } catch { return []; }
  },
  set(at, all) {
    if (all.length) localStorage.setItem(this.key(at), JSON.stringify(all));
    else localStorage.removeItem(this.key(at));
    for (const text of document.querySelectorAll("board-text")) text.marks();
  },
  add(at, draft) { this.set(at, [...this.of(at), draft]); },
  clear(at) { this.set(at, []); },
};

/* A diff or a log: only the lines that are seen are there. */
class BoardText extends HTMLElement {
  connectedCallback() {
    this.kind = this.getAttribute("kind");
    this.total = 0;
    this.version = "";
    this.cache = new Map();
    this.follow = this.kind === "log";
    const heading = document.createElement("h2");
    heading.textContent = this.dataset.title;
    this.head = document.createElement("span");
    this.head.className = "faint";
    heading.append(" ", this.head);
    this.drafts = document.createElement("ul");
    this.drafts.className = "drafts";
    this.files = document.createElement("details");
    this.files.className = "files";
    this.files.hidden = true;
    this.files.append(document.createElement("summary"), document.createElement("ul"));
    this.box = document.createElement("div");
    this.box.className = `text ${this.kind}`;
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "region");
    this.box.setAttribute("aria-label", this.dataset.title);
    this.space = document.createElement("div");
    this.space.className = "space";
    this.box.append(this.space);
    this.append(heading, this.drafts, this.files, this.box);
    this.box.addEventListener("scroll", () => { this.follow = this.atEnd(); this.draw(); });
    this.box.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-place]");
      if (button) this.comment(button.dataset.place);
    });
    this.sizes = new ResizeObserver(() => {
      if (this.follow) this.box.scrollTop = this.box.scrollHeight;
      this.measure();
      this.update();
    });
    this.sizes.observe(this.box);
    this.timer = setInterval(() => { if (!document.hidden) this.update(); }, this.kind === "log" ? 1000 : 5000);
    this.measure();
    this.update();
    this.marks();
  }

  disconnectedCallback() {
    clearInterval(this.timer);
    this.sizes.disconnect();
  }

  // A log whose end is seen goes on being read there.
  atEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.box;
    return this.kind === "log" && scrollTop + clientHeight >= scrollHeight - 4;
  }

  measure() {
    const probe = document.createElement("span");
    probe.textContent = "0".repeat(50);
    probe.className = "probe";
    this.box.append(probe);
    const { width, height } = probe.getBoundingClientRect();
    probe.remove();
    this.line = Math.max(12, Math.round(height));
    this.box.style.setProperty("--line-height", `${this.line}px`);
    const columns = Math.floor((this.box.clientWidth - 72) / (width / 50));
    this.width = Math.max(20, Math.min(400, columns));
  }

  async fetchPart(from) {
    const query = new URLSearchParams({ kind: this.kind, id: place.id, from, width: this.width, known: this.version });
    if (place.repository) query.set("repository", place.repository);
    const answer = await ask(`/text?${query}`);
    if (!answer.ok) return;
    const { version, total, head, files, lines } = await answer.json();
    // It may have been scrolled just now: the event comes later.
    if (this.total > 0) this.follow = this.atEnd();
    if (version !== this.version) this.cache.clear();
    this.version = version;
    this.total = total;
    this.head.textContent = head;
    if (files) this.list(files);
    lines.forEach((line, n) => this.cache.set(from + n, line));
    // What is far away is asked for again when it is seen.
    if (this.cache.size > 5000) for (const n of [...this.cache.keys()].slice(0, 2500)) this.cache.delete(n);
    this.space.style.setProperty("height", `${total * this.line}px`);
    this.box.style.setProperty("height", `min(70dvh, ${Math.max(1, total) * this.line + 2}px)`);
    this.box.classList.toggle("nothing", total === 0);
    if (this.kind === "log") this.closest(".list").hidden = total === 0;
    if (this.follow) this.box.scrollTop = this.box.scrollHeight;
  }

  async update() {
    if (this.busy) return;
    this.busy = true;
    try { await this.fetchPart(this.follow && this.total > 200 ? this.total - 200 : this.first()); } catch { /* The page says that it is not up to date. */ }
    this.busy = false;
    this.draw();
  }

  first() { return Math.max(0, Math.floor(this.box.scrollTop / this.line) - 100); }

  async draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.line) - 20);
    const last = Math.min(this.total, first + Math.ceil(this.box.clientHeight / this.line) + 40);
    const focused = this.box.contains(document.activeElement) ? document.activeElement.dataset.place : undefined;
    // Lines that are the same stay, with what is selected in them.
    const drawn = `${this.version} ${first} ${last} ${this.line} ${this.cache.has(first)} ${this.cache.has(last - 1)}`;
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const lines = [];
    let missing = -1;
    for (let n = first; n < last; n++) {
      const html = this.cache.get(n);
      if (html === undefined) { if (missing < 0) missing = n; continue; }
      const line = document.createElement("div");
      line.className = "line";
      line.innerHTML = html;
      line.style.setProperty("top", `${n * this.line}px`);
      lines.push(line);
    }
    this.space.replaceChildren(...lines);
    this.marks();
    if (focused) this.space.querySelector(`button[data-place="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    if (missing >= 0 && !this.busy) {
      this.busy = true;
      try { await this.fetchPart(Math.max(0, missing - 50)); } catch { return; } finally { this.busy = false; }
      this.drawn = "";
      if (this.cache.has(missing)) this.draw();
    }
  }

  // The files of a diff, if there are several; the server names that many at most.
  list(files) {
    const MOST_FILES = 300;
    this.files.hidden = files.length < 2;
    this.files.open = files.length < 8;
    this.files.querySelector("summary").textContent = files.length < MOST_FILES ? `${files.length} files` : `The first ${files.length} files`;
    this.files.querySelector("ul").replaceChildren(...files.map(([name, at]) => {
      const row = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", () => { this.box.scrollTop = at * this.line; this.box.focus(); });
      row.append(button);
      return row;
    }));
  }

  // Lines with a comment that was not sent.
  marks() {
    if (this.kind !== "diff" || !this.box) return;
    const all = Drafts.of(place);
    for (const button of this.space.querySelectorAll("button[data-place]")) {
      const own = all.filter(([at]) => at === button.dataset.place).map(([, text]) => text);
      button.closest(".line").classList.toggle("commented", own.length > 0);
      button.closest(".line").dataset.comment = own.join(" · ");
    }
    this.drafts.replaceChildren(...all.map(([at, text], n) => {
      const row = document.createElement("li");
      const remove = document.createElement("button");
      remove.textContent = "remove";
      remove.setAttribute("aria-label", `Remove the comment on ${at}`);
      remove.addEventListener("click", () => Drafts.set(place, Drafts.of(place).filter((_, other) => other !== n)));
      const where = document.createElement("code");
      where.textContent = at;
      row.append(where, ` ${text} `, remove);
      return row;
    }));
    if (all.length && this.dataset.comments === "with_review") {
      const note = document.createElement("li");
      note.className = "faint";
      note.textContent = "Not sent yet: return or approve sends them.";
      this.drafts.append(note);
    }
  }

  async comment(at) {
    const issue = { ...place };
    const how = this.dataset.comments;
    if (!how) { say("Nobody works on it, and it does not wait for review: comment on the issue instead.", "bad"); return; }
    const key = document.querySelector("#list-issue li[data-key]").dataset.key;
    if (how === "at_once") {
      const own = document.querySelector("#list-issue button[data-action='t']");
      const request = { item: key, action: "c", line: own.dataset.line, comments: [[at, ""]] };
      await begin(request, { label: "tell the agent", about: at, asks: "Comment" });
      return;
    }
    part("title").textContent = `Comment: ${at}`;
    part("line").textContent = `toft review ${place.id} … --at '${at}' …`;
    part("label").hidden = false;
    part("label").querySelector("span").textContent = "Comment";
    part("said").value = "";
    part("said").required = true;
    part("preview").hidden = true;
    part("comments").hidden = true;
    part("do").textContent = "keep";
    part("do").disabled = false;
    const mine = ++opened;
    dialog.returnValue = "";
    dialog.showModal();
    part("said").focus();
    await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
    if (mine === opened && dialog.returnValue === "do") Drafts.add(issue, [at, part("said").value.trim()]);
  }

  // Moves from line to line.
  move(by) {
    const buttons = [...this.space.querySelectorAll("button[data-place]")];
    const now = buttons.indexOf(document.activeElement);
    const next = buttons[now < 0 ? 0 : now + by];
    if (!next) return;
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }
}
customElements.define("board-text", BoardText);

/* Attempts over time: how long each took. The time when nobody worked is a gap, however long it was. */
class BoardTimeline extends HTMLElement {
  connectedCallback() {
    this.timer = setInterval(() => this.draw(), 5000);
    this.draw();
  }

  disconnectedCallback() { clearInterval(this.timer); }

  draw() {
    let before = 0;
    const bars = [];
    for (const { dataset } of this.parentElement.querySelectorAll("li[data-from]")) {
      const bar = document.createElement("span");
      const [from, to] = [Number(dataset.from), Number(dataset.to ?? Date.now())];
      bar.className = dataset.to ? "bar" : "bar live";
      if (before && from > before) bar.classList.add("after");
      bar.style.setProperty("flex-grow", Math.max(1, to - from));
      bars.push(bar);
      before = to;
    }
    this.hidden = bars.length < 2;
    this.replaceChildren(...bars);
  }
}
customElements.define("board-timeline", BoardTimeline);

/* The plan: drag moves it, the wheel with Ctrl and the buttons zoom. */
class BoardGraph extends HTMLElement {
  connectedCallback() {
    this.svg = this.querySelector("svg");
    this.size = [Number(this.svg.getAttribute("width")), Number(this.svg.getAttribute("height"))];
    this.tabIndex = 0;
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Plan");
    const tools = document.createElement("div");
    tools.className = "zoom";
    for (const [label, name, factor] of [["−", "Zoom out", 0.8], ["+", "Zoom in", 1.25], ["fit", "Show everything", 0]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.title = name;
      button.addEventListener("click", () => this.zoom(factor));
      tools.append(button);
    }
    this.before(tools);
    this.zoom(BoardGraph.scale === undefined ? (this.size[0] > this.clientWidth * 3 ? 1 : 0) : 1);
    [this.scrollLeft, this.scrollTop] = BoardGraph.scroll;
    this.addEventListener("scroll", () => { BoardGraph.scroll = [this.scrollLeft, this.scrollTop]; });
    this.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.1 : 0.9);
    }, { passive: false });
    this.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse") this.from = [event.clientX + this.scrollLeft, event.clientY + this.scrollTop]; });
    this.addEventListener("pointermove", (event) => {
      if (!this.from || !event.buttons) return;
      this.scrollTo(this.from[0] - event.clientX, this.from[1] - event.clientY);
    });
    this.addEventListener("dragstart", (event) => event.preventDefault());
  }

  disconnectedCallback() { this.parentElement?.querySelector(".zoom")?.remove(); }

  // By a factor; everything is shown with 0.
  zoom(factor) {
    const fit = Math.min(1, this.clientWidth / this.size[0]);
    BoardGraph.scale = factor === 0 ? fit : Math.max(0.05, Math.min(3, (BoardGraph.scale ?? 1) * factor));
    this.svg.setAttribute("width", this.size[0] * BoardGraph.scale);
    this.svg.setAttribute("height", this.size[1] * BoardGraph.scale);
  }
}
BoardGraph.scroll = [0, 0];
customElements.define("board-graph", BoardGraph);

/* Links, buttons and keys */

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-action]");
  if (button) { press(button); return; }
  if (event.target.closest("#help")) { document.querySelector("#keys").showModal(); return; }
  const link = event.target.closest("a[href]");
  if (!link || link.classList.contains("skip") || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const url = new URL(link.getAttribute("href"), location.origin);
  if (url.origin !== location.origin) return;
  event.preventDefault();
  go(url, true);
});
addEventListener("popstate", () => go(new URL(location), false));

addEventListener("keydown", (event) => {
  // Such as the Enter that sent a text and closed its dialog.
  if (event.defaultPrevented) return;
  // A dialog that was closed just now has the focus for a moment longer.
  const asks = event.target.closest("dialog");
  if (asks ? asks.open : event.target.closest("input, textarea")) {
    if (event.target !== search) return;
    if (event.key === "Escape") { search.value = ""; filter(); main.focus(); }
    if (event.key === "Enter") (main.querySelector("li[data-key]:not([hidden])") ?? main).focus();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || signIn?.hidden === false) return;
  if (keyPressed(event.key)) event.preventDefault();
});

function keyPressed(key) {
  const diff = document.activeElement?.closest?.("board-text");
  if (diff && (key === "j" || key === "ArrowDown" || key === "k" || key === "ArrowUp") && diff.kind === "diff") {
    diff.move(key === "j" || key === "ArrowDown" ? 1 : -1);
    return true;
  }
  if (diff && key === "c" && document.activeElement.dataset.place) { diff.comment(document.activeElement.dataset.place); return true; }
  const rows = [...main.querySelectorAll(".list > ul > li:not([hidden])")];
  const row = document.activeElement?.closest?.("li[data-key]");
  const at = rows.indexOf(row);
  const focus = (to) => rows[Math.max(0, Math.min(rows.length - 1, to))]?.focus();
  if (/^[1-7]$/.test(key)) document.querySelectorAll("nav a")[key - 1].click();
  else if (key === "j" || key === "ArrowDown") focus(at + 1);
  else if (key === "k" || key === "ArrowUp") focus(at < 0 ? 0 : at - 1);
  else if (key === "ArrowLeft") sideways(row, -1);
  else if (key === "ArrowRight") sideways(row, 1);
  else if (key === "/") search.focus();
  else if (key === "?") document.querySelector("#keys").showModal();
  else if (key === "Escape" && search.value !== "") { search.value = ""; filter(); }
  else if (key === "Escape" && place.screen === "issue") history.back();
  else if (key === "Enter" && row === document.activeElement) row?.querySelector("a.id")?.click();
  else if ("dogh".includes(key) && place.screen === "issue") {
    const part = { d: 'board-text[kind="diff"] .text', h: "#list-history li" }[key] ?? 'board-text[kind="log"] .text';
    document.querySelector(part)?.focus();
  }
  else {
    const button = row?.querySelector(`button[data-action="${CSS.escape(key)}"]`)
      ?? (place.screen === "issue" && document.querySelector(`#list-issue button[data-action="${CSS.escape(key)}"]`))
      ?? null;
    const own = button || document.querySelector(`header button[data-action="${CSS.escape(key)}"]`);
    // Without a chosen row, the key chooses the first that has it.
    const first = own ? null : main.querySelector(`li[data-key]:not([hidden]) button[data-action="${CSS.escape(key)}"]`)?.closest("li[data-key]");
    if (!own && !first) return false;
    if (own) own.click();
    else first.focus();
  }
  return true;
}

function sideways(row, by) {
  const lists = [...main.querySelectorAll(".list")];
  let n = lists.indexOf(row?.closest(".list"));
  const rowNumber = row ? [...row.parentElement.children].indexOf(row) : 0;
  for (n = n < 0 ? 0 : n + by; lists[n]; n += by) {
    const rows = [...lists[n].querySelectorAll("ul > li:not([hidden])")];
    if (rows.length) { rows[Math.min(rowNumber, rows.length - 1)].focus(); return; }
  }
}

/* One stream for all tabs of this browser: the tab that has the lock listens, and tells the others. */

const channel = new BroadcastChannel("toft-board");
channel.onmessage = () => refresh();
navigator.locks?.request("toft-board-stream", async () => {
  for (;;) {
    try {
      if (signIn && session === "") throw new Error("signed out");
      const stream = await ask("/stream", { signal: null });
      const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); stream.ok && !part.done; part = await reader.read()) {
        if (!part.value.includes("event: changed")) continue;
        refresh();
        channel.postMessage("changed");
      }
    } catch { /* It is tried again. */ }
    await new Promise((done) => setTimeout(done, 1000));
    refresh();
  }
});
// Without a stream, and because time alone changes what is seen.
setInterval(() => { if (!document.hidden) refresh(); }, 5000);
setInterval(() => { if (!document.hidden) ages(); }, 1000);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });

go(new URL(location), false);
