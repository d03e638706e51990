'use strict';
// The page of a pool. What tenants wrote gets into it by el() alone, as text.

const $ = (id) => document.getElementById(id);

// visible returns a text in which nothing moves a cursor or turns the direction of writing, as internal/page has it.
const visible = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => (/\s/.test(c) ? ' ' : '\uFFFD'));

// el returns an element: properties that are functions are its listeners, and children that are no elements are text.
function el(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : visible(value));
  }
  put(element, ...children);
  return element;
}

function put(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((c) => c !== undefined && c !== '' && c !== false)
    .map((c) => (c instanceof Node ? c : document.createTextNode(visible(c)))));
}

const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;
const state = { pool: null, resource: 0, trial: null, trying: '', lit: null, place: '' };
let rows = new Map(); // what is drawn of each super cluster: its element, and what it was drawn of

// keeping runs draw, and gives the focus back to what has the same key (data-k) as what had it.
function keeping(draw) {
  const key = document.activeElement?.dataset?.k;
  draw();
  if (key && document.activeElement?.dataset?.k !== key) document.querySelector(`[data-k="${CSS.escape(key)}"]`)?.focus();
}

function say(words) {
  if ($('said').textContent !== words) put($('said'), words);
}

// ---- bars ----

const tenantOf = (index) => state.pool.tenants[index] ?? { letters: '?', colour: 0, name: '', key: '' };
const mark = (tenant) => el('span', { class: `mark c${tenant.colour}`, 'aria-hidden': 'true' }, tenant.letters);

function segment(bar, s, scale, isOthers) {
  const tenant = isOthers ? { letters: `+${s.tenant}`, name: 'other tenants', key: '' } : tenantOf(s.tenant);
  const share = s.share[state.resource], width = share * scale, leaves = s.leaves?.[state.resource] ?? 0;
  const words = `${tenant.letters} ${tenant.name}: ${count(s.slices, 'slice', 'slices')}, ${s.text}${s.going ? `, of which ${s.going} is to leave` : ''}`;
  const button = el('button', {
    type: 'button', class: `seg ${isOthers ? '' : `c${tenant.colour}`} ${width < 2.4 ? 'thin' : ''}`, tabindex: '-1', title: words, 'aria-label': words,
    'data-k': `seg ${bar.name} ${tenant.key}`, 'data-tenant': tenant.key,
    click: () => show(isOthers ? { kind: 'supercluster', name: bar.name } : { kind: 'tenant', key: tenant.key }),
  });
  button.style.width = `${width}%`;
  if (s.slices > 1 && width / s.slices > 0.6) {
    button.classList.add('cells');
    button.style.setProperty('--slices', s.slices);
  }
  if (leaves > 0) {
    const going = el('span', { class: 'going' });
    going.style.width = `${(100 * leaves) / Math.max(share, 1)}%`;
    button.append(going);
  }
  button.append(el('b', { 'aria-hidden': 'true' }, tenant.letters));
  return button;
}

function barOf(bar) {
  const r = state.resource, trial = state.trial, kept = (bar.kept?.[r] ?? 0) / 100;
  const all = [...bar.segments, ...(bar.others ? [bar.others] : [])];
  const coming = trial?.comes.get(bar.name), isDrained = trial?.superCluster === bar.name;
  const reserved = all.reduce((sum, s) => sum + s.share[r], 0) + (coming?.share[r] ?? 0);
  const scale = (100 - kept) / Math.max(reserved, 10000);
  const parts = all.filter((s) => s.share[r] > 0).map((s) => segment(bar, s, scale, s === bar.others));
  if (coming) {
    const part = el('span', { class: 'comes', title: coming.text }, `+${coming.slices}`);
    part.style.width = `${coming.share[r] * scale}%`;
    parts.push(part);
  }
  const free = bar.free.split(' ').find((part) => part.startsWith(`${state.pool.resources[r]}=`));
  parts.push(el('span', { class: 'rest', title: `free ${bar.free}` }, coming ? '' : free ? `free ${free}` : 'full'));
  if (kept > 0) {
    const part = el('span', { class: 'kept part', title: `headroom ${bar.keptText}` });
    part.style.width = `${kept}%`;
    parts.push(part);
  }
  const words = `${bar.name}: ${state.pool.resources[r]} ${bar.figures[r]} is reserved, free ${bar.free}${bar.keptText ? `, headroom ${bar.keptText}` : ''}`;
  const isOdd = bar.status.length > 1 || bar.status[0] !== 'Ready', isTrying = state.trying === bar.name;
  return el('li', { class: isDrained ? 'draining' : '' },
    el('div', { class: 'head' },
      el('button', { type: 'button', class: 'link', 'data-k': `super ${bar.name}`, click: () => show({ kind: 'supercluster', name: bar.name }) }, bar.name),
      bar.status.map((word) => el('span', { class: `chip ${word === 'Ready' ? 'good' : isOdd ? 'warn' : ''}` }, word)),
      bar.version && el('span', { class: 'soft' }, bar.version),
      el('span', { class: 'figures' }, bar.figures.flatMap((figure, i) => (i > 1 && i !== r ? [] : [i ? '  ·  ' : '', `${state.pool.resources[i]} `, el(i === r ? 'b' : 'span', {}, figure)]))),
      el('button', {
        type: 'button', class: 'quiet', 'data-k': `drain ${bar.name}`, 'aria-label': isDrained ? `End the trial of ${bar.name}` : `Try a drain of ${bar.name}`, 'aria-busy': isTrying && 'true',
        click: () => (isDrained ? endTrial() : tryDrain(bar.name)),
      }, isTrying ? 'trying …' : isDrained ? 'End the trial' : 'Try a drain')),
    el('div', { class: 'bar', role: 'group', 'aria-label': words }, parts),
    bar.keptText && el('p', { class: 'below' }, `headroom ${bar.keptText}`),
    coming && el('p', { class: 'below would' }, `${count(coming.slices, 'slice', 'slices')} would come: ${coming.text}`),
    (bar.messages ?? []).map((message) => el('p', { class: 'below warn' }, message)));
}

function drawBars() {
  const drawn = new Map();
  for (const bar of state.pool.superClusters) {
    const trial = state.trial && [state.trial.superCluster === bar.name, state.trial.comes.get(bar.name)];
    const of = JSON.stringify([bar, state.resource, trial, state.trying === bar.name, bar.segments.map((s) => state.pool.tenants[s.tenant])]);
    const before = rows.get(bar.name);
    drawn.set(bar.name, before?.of === of ? before : { of, element: barOf(bar) });
  }
  const elements = [...drawn.values()].map((row) => row.element), list = $('bars');
  if (rows.size !== drawn.size || elements.some((element, i) => list.children[i] !== element)) list.replaceChildren(...elements);
  if (!elements.length) put(list, el('li', { class: 'none' }, 'There are no super clusters: kubectl vc join makes one of a cluster'));
  rows = drawn;
  rove();
}

// rove lets Tab reach one segment: the last one that had the focus, or the first.
function rove() {
  const all = [...document.querySelectorAll('.seg')];
  const chosen = all.find((s) => s.dataset.k === state.place) ?? all[0];
  for (const s of all) s.tabIndex = s === chosen ? 0 : -1;
}

$('bars').addEventListener('keydown', (event) => {
  const at = event.target.closest('.seg');
  if (!at || event.altKey || event.ctrlKey || event.metaKey) return;
  const bars = [...document.querySelectorAll('.bar')].map((b) => [...b.querySelectorAll('.seg')]).filter((b) => b.length);
  const y = bars.findIndex((b) => b.includes(at)), x = bars[y].indexOf(at), last = bars[y].length - 1;
  const middle = (s) => s.offsetLeft + s.offsetWidth / 2;
  const nearest = (b) => b?.reduce((best, s) => (Math.abs(middle(s) - middle(at)) < Math.abs(middle(best) - middle(at)) ? s : best));
  const to = {
    ArrowRight: bars[y][Math.min(x + 1, last)], ArrowLeft: bars[y][Math.max(x - 1, 0)], Home: bars[y][0], End: bars[y][last],
    ArrowDown: nearest(bars[y + 1]), ArrowUp: nearest(bars[y - 1]),
  }[event.key];
  if (!(event.key.startsWith('Arrow') || event.key === 'Home' || event.key === 'End')) return;
  event.preventDefault();
  to?.focus();
});

document.addEventListener('focusin', (event) => {
  if (event.target.classList?.contains('seg')) {
    state.place = event.target.dataset.k;
    rove();
  }
});

// light dims all tenants but one, of a segment or the list, while the pointer or the focus is there.
function light(event) {
  const key = event.target.closest?.('[data-tenant]')?.dataset.tenant;
  if (key === state.lit) return;
  state.lit = key;
  document.body.classList.toggle('dim', Boolean(key));
  for (const element of document.querySelectorAll('.lit')) element.classList.remove('lit');
  if (key) for (const element of document.querySelectorAll(`[data-tenant="${CSS.escape(key)}"]`)) (element.querySelector('.mark') ?? element).classList.add('lit');
}
document.addEventListener('pointerover', light);

// ---- lists ----

const namespaceLink = (key, name, where) => el('button', { type: 'button', class: 'link', 'data-k': `ns ${where} ${key} ${name}`, click: () => show({ kind: 'namespace', key, name }) }, name);
const tenantCell = (tenant, where) => [mark(tenant), el('button', { type: 'button', class: 'link', 'data-k': `tenant ${where} ${tenant.key}`, click: () => show({ kind: 'tenant', key: tenant.key }) }, tenant.name)];
const byKey = (key) => state.pool.tenants.find((t) => t.key === key) ?? { letters: '?', colour: 11, name: key, key };

// table returns a table with a caption for those who cannot see what is above it. Classes of columns are in header: 'Why|why'.
function table(caption, header, lines, all) {
  const names = header.map((h) => h.split('|'));
  const more = (all ?? lines.length) - lines.length;
  return [el('table', {}, el('caption', { class: 'unseen' }, caption),
    el('thead', {}, el('tr', {}, names.map(([name]) => el('th', { scope: 'col' }, name)))),
    el('tbody', {}, lines.map((cells) => el('tr', {}, cells.map((cell, i) => el('td', { class: names[i][1] }, cell)))))),
  more > 0 && el('p', { class: 'none' }, `and ${more} more`)];
}

function drawLists() {
  const pool = state.pool;
  put($('waiting-title'), `What waits${pool.waitingAll ? ` (${pool.waitingAll})` : ''}`);
  put($('waiting'), pool.waitingAll ? table('Namespaces that wait', ['Tenant|tight', 'Namespace', 'Missing', 'Why|why'],
    pool.waiting.map((w) => [tenantCell(tenantOf(w.tenant), `waits ${w.namespace}`), namespaceLink(tenantOf(w.tenant).key, w.namespace, 'waits'), w.missing, w.why]), pool.waitingAll)
    : el('p', { class: 'none' }, 'Nothing waits.'));
  put($('leaving-title'), `What leaves${pool.leavingAll ? ` (${pool.leavingAll})` : ''}`);
  put($('leaving'), pool.leavingAll ? table('What is to leave', ['Super cluster', 'Tenant|tight', 'Namespace', 'What', 'Reason', 'Waits for|why'],
    pool.leaving.map((l) => [l.superCluster, tenantCell(tenantOf(l.tenant), `leaves ${l.superCluster} ${l.namespace}`),
      namespaceLink(tenantOf(l.tenant).key, l.namespace, `leaves ${l.superCluster}`), l.leaves, l.reason, l.waits]), pool.leavingAll)
    : el('p', { class: 'none' }, 'Nothing is to leave.'));
  const wanted = $('find').value.trim().toLowerCase();
  $('find-label').hidden = pool.tenants.length <= 12;
  put($('tenants'), pool.tenants.filter((t) => t.name.toLowerCase().includes(wanted)).map((tenant) => el('li', {},
    el('button', { type: 'button', 'data-k': `tenant list ${tenant.key}`, 'data-tenant': tenant.key, click: () => show({ kind: 'tenant', key: tenant.key }) },
      mark(tenant), el('span', { class: 'name' }, tenant.name),
      el('span', { class: 'soft' }, `${tenant.status.join(', ')}${tenant.namespaces ? ` · ${count(tenant.namespaces, 'namespace', 'namespaces')}` : ''}${tenant.waiting ? `, ${tenant.waiting} waiting` : ''}`),
      tenant.reserved && el('span', { class: 'soft' }, tenant.reserved)))));
}
$('find').addEventListener('input', () => keeping(drawLists));

function drawHead() {
  const pool = state.pool, clusters = count(pool.superClusters.length, 'super cluster', 'super clusters');
  put($('summary'), `${clusters} · ${count(pool.tenants.length, 'tenant', 'tenants')} · ${count(pool.namespaces, 'namespace', 'namespaces')} · ${pool.resources[state.resource]} ${pool.total[state.resource]} reserved · `,
    el('a', { href: '#waiting-title', 'data-k': 'to waiting' }, `${pool.waitingAll} waiting`), ' · ', el('a', { href: '#leaving-title', 'data-k': 'to leaving' }, `${pool.leavingAll} leaving`));
  const names = pool.resources.join();
  if ($('resources').dataset.names !== names) {
    $('resources').dataset.names = names;
    put($('resources'), el('legend', {}, 'Bars show'), pool.resources.map((name, i) => el('label', {}, el('input', {
      type: 'radio', name: 'resource', value: i, checked: i === state.resource, 'data-k': `resource ${name}`, change: () => { state.resource = i; draw(); },
    }), name)));
  }
  $('notes').hidden = !pool.notes?.length;
  if ($('notes').textContent !== (pool.notes ?? []).join('; ')) put($('notes'), (pool.notes ?? []).join('; '));
  if (state.waiting !== pool.waitingAll) say(pool.waitingAll ? count(pool.waitingAll, 'namespace waits', 'namespaces wait') : 'Nothing waits');
  state.waiting = pool.waitingAll;
}

function draw() {
  keeping(() => {
    state.resource = Math.min(state.resource, state.pool.resources.length - 1);
    drawHead();
    drawBars();
    drawLists();
    drawTrial();
  });
}

// ---- what is asked for ----

let asking = new AbortController(); // of the drain that is tried
let explaining = new AbortController(); // of what the drawer has tried

async function ask(path, parameters, signal) {
  const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`, { signal });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

async function tryDrain(name) {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  state.trying = name;
  draw();
  say(`Trying a drain of ${name}`);
  try {
    state.trial = await ask('drain', { name }, signal);
    state.trial.comes = new Map(Object.entries(state.trial.comes)); // an object has names that are no super cluster's
  } catch (failure) {
    if (signal.aborted) return;
    state.trial = { superCluster: name, failed: failure.message, comes: new Map(), moves: [], all: 0, stays: 0 };
  }
  state.trying = '';
  draw();
  say(trialWords(state.trial));
  $('drained-title').focus();
  $('drained').scrollIntoView({ block: 'nearest' });
}

function endTrial() {
  const name = state.trial?.superCluster;
  state.trial = null;
  draw();
  document.querySelector(`[data-k="${CSS.escape(`drain ${name}`)}"]`)?.focus();
}
$('drained-close').addEventListener('click', endTrial);
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && state.trial && !$('drawer').open) endTrial();
});

function trialWords(trial) {
  if (trial.failed) return trial.failed;
  if (!trial.all) return 'Nothing is placed there.';
  const moves = trial.all - trial.stays;
  const stay = `${count(trial.stays, 'fits', 'fit')} nowhere else and would stay there until there is room`;
  return `${count(trial.all, 'namespace has', 'namespaces have')} something there: ${trial.stays === 0 ? 'all of it fits elsewhere' : moves === 0 ? stay : `${count(moves, 'moves', 'move')}, and ${stay}`}. Nothing was changed.`;
}

function drawTrial() {
  const trial = state.trial;
  $('drained').hidden = !trial;
  if (!trial || state.drawnTrial === trial) return;
  state.drawnTrial = trial;
  put($('drained-title'), `If ${trial.superCluster} were drained`);
  put($('drained-words'), trialWords(trial));
  put($('drained-rows'), trial.moves.length ? table('What would move', ['Tenant|tight', 'Namespace', 'Slices', 'Would go to|why'], trial.moves.map((m) => [
    tenantCell(byKey(m.key), `trial ${m.namespace}`), namespaceLink(m.key, m.namespace, 'trial'), m.slices,
    m.missing ? `nowhere: ${m.missing} is missing: ${m.why}` : m.to || 'nothing more: it has all that it asks for'])
  , trial.all) : '');
}

// ---- the drawer ----

const drawer = $('drawer');
let stack = [], shown = '';

function show(what) {
  if (!drawer.open) {
    stack = [];
    drawer.dataset.from = document.activeElement?.dataset?.k ?? '';
    drawer.showModal();
  }
  stack.push(what);
  turn();
}

// left ends what was tried for what the drawer showed.
function left() {
  explaining.abort();
  explaining = new AbortController();
}

async function turn() {
  left();
  const what = stack.at(-1);
  shown = '';
  put($('drawer-title'), what.kind === 'tenant' ? [mark(byKey(what.key)), ` Tenant ${byKey(what.key).name}`]
    : what.kind === 'namespace' ? [mark(byKey(what.key)), ` Namespace ${what.name}`] : `Super cluster ${what.name}`);
  put($('drawer-body'), el('p', { class: 'none' }, 'reading …'));
  put($('drawer-more'), what.kind === 'namespace' && el('button', { type: 'button', class: 'quiet', 'data-k': 'explain', click: () => explain(what) }, 'Explain: try what is missing'));
  $('drawer-back').hidden = stack.length < 2;
  $('drawer-title').focus();
  await fill(what);
}

// fill asks for what the drawer shows, and draws it where it is another than is shown.
async function fill(what) {
  let found;
  try {
    found = await ask(what.kind, { name: what.name ?? '', key: what.key ?? '' });
  } catch (failure) {
    found = { failed: failure.message };
  }
  const text = JSON.stringify(found);
  if (what !== stack.at(-1) || text === shown || !drawer.open) return;
  shown = text;
  keeping(() => put($('drawer-body'), found.failed ? el('p', {}, found.failed) : drawers[what.kind](found, what)));
}

const branches = (below) => el('ul', {}, below.map((b) => el('li', {}, b.text, b.below && branches(b.below))));
const tree = (branch) => el('div', { class: 'tree' }, el('p', {}, branch.text), branch.below && branches(branch.below));

const drawers = {
  supercluster: (found) => [
    el('p', {}, [...found.status, ...(found.version ? [found.version] : [])].join(', '), found.state ? `. Nothing new: ${found.state}` : ''),
    (found.messages ?? []).map((message) => el('p', { class: 'below warn' }, message)),
    el('h3', {}, 'Resources'),
    table('Resources', ['Resource', 'Reserved', 'Allocatable', '%'], found.resources.map((r) => [r.resource, r.used, r.allocatable, r.percent < 0 ? '-' : `${r.percent}%`])),
    el('h3', {}, 'Who has what'),
    found.rows ? table('Who has what', ['Tenant|tight', 'Namespace', 'Slices', 'Reserved', 'Leaving|why'], found.holdings.map((h) => [
      tenantCell(byKey(h.key), `in ${h.namespace}`), namespaceLink(h.key, h.namespace, 'in'), h.slices, h.reserved,
      h.reason ? `${h.leaving} (${h.reason}): ${h.waits}` : '-']), found.rows) : el('p', { class: 'none' }, 'Nothing is reserved there.'),
  ],
  tenant: (found, what) => [
    el('p', {}, byKey(what.key).status?.join(', ')),
    found.about ? tree(found.about) : el('p', {}, `There is no VirtualCluster of root namespace ${found.key}.`),
    el('h3', {}, `Namespaces (${found.rows})`),
    found.rows ? table('Namespaces', ['Namespace', 'Slices', 'Reserved', 'Where|why', 'State'], found.namespaces.map((n) => [
      namespaceLink(found.key, n.name, 'of'), n.slices, n.reserved, n.where || '-', n.waits ? el('span', { class: 'chip warn' }, 'waits') : 'placed']), found.rows)
      : el('p', { class: 'none' }, 'No namespace has a ResourceQuota with cpu or memory.'),
  ],
  namespace: (found, what) => [el('p', {}, 'of tenant ', ...tenantCell(byKey(what.key), 'drawer').slice(1)), tree(found)],
};

async function explain(what) {
  const draw = (...children) => keeping(() => put($('drawer-more'), ...children));
  draw(el('p', { class: 'none', role: 'status' }, 'trying in memory …'));
  let text;
  try {
    ({ text } = await ask('explain', { key: what.key, name: what.name }, explaining.signal));
  } catch (failure) {
    text = failure.message;
  }
  if (what !== stack.at(-1)) return;
  const lines = text.trim().split('\n');
  draw(el('h3', { tabindex: '-1', id: 'explained' }, 'kubectl vc explain'), el('pre', {}, lines.flatMap((line) => [line, el('br')])));
  $('explained').focus();
}

$('drawer-close').addEventListener('click', () => drawer.close());
$('drawer-back').addEventListener('click', () => { stack.pop(); turn(); });
drawer.addEventListener('click', (event) => { if (event.target === drawer) drawer.close(); });
drawer.addEventListener('close', () => {
  left();
  stack = [];
  const key = drawer.dataset.from;
  if (key) document.querySelector(`[data-k="${CSS.escape(key)}"]`)?.focus();
});

// ---- what changes ----

function connected(is, words) {
  if ($('connection').dataset.state === (is ? 'on' : 'off') && $('connection').lastElementChild.textContent === words) return;
  $('connection').dataset.state = is ? 'on' : 'off';
  put($('connection').lastElementChild, words);
}

const events = new EventSource('events');
events.addEventListener('message', (event) => {
  state.pool = JSON.parse(event.data);
  draw();
  connected(true, 'live');
  if (drawer.open) fill(stack.at(-1));
});
events.addEventListener('open', () => state.pool && connected(true, 'live'));
events.addEventListener('error', () => {
  const isRefused = events.readyState === EventSource.CLOSED; // a browser does not ask again
  connected(false, isRefused ? 'refused' : 'not live');
  say(isRefused ? 'refused: too many pages are open, or this address is an old one' : 'kubectl vc ui does not answer: what you see may be old');
  if (isRefused && !state.pool) put($('summary'), $('said').textContent);
});
