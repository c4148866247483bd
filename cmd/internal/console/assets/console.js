// What pages do beyond links and forms: the local time zone, echoes of instants, live parts that pause, charts.
"use strict";
(() => {
  const each = (where, what, how) => where.querySelectorAll(what).forEach(how);
  const two = n => String(n).padStart(2, "0");
  const utcText = d => d.toISOString().slice(0, 19).replace("T", " ");
  const localText = d => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  const zoneName = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const isLocal = () => localStorage.getItem("zone") === "local";

  // Times are UTC in the page.
  function times(where) {
    each(where, "time[datetime]", t => { const d = new Date(t.dateTime); t.textContent = isLocal() ? localText(d) : utcText(d); });
    each(document, "#zone-name, [data-zone-name]", e => { e.textContent = isLocal() ? zoneName : "UTC"; });
    each(document, "input[name=zone]", e => { e.value = isLocal() ? zoneName : ""; });
    const b = document.getElementById("zone");
    if (b) { b.hidden = false; b.textContent = isLocal() ? "Local time" : "UTC"; b.title = isLocal() ? "Show UTC" : "Show " + zoneName; }
  }
  document.addEventListener("click", e => {
    if (e.target.id !== "zone") return;
    localStorage.setItem("zone", isLocal() ? "utc" : "local");
    times(document);
    each(document, "[data-instant]", echo);
  });

  // What an instant is that is typed: in both zones, and in how long.
  function echo(input) {
    const out = input.parentElement.querySelector("[data-echo]"), text = input.value.trim();
    if (!out) return;
    let at = NaN, m;
    if ((m = text.match(/^\+(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/))) at = Date.now() + 1000 * ((m[1] || 0) * 86400 + (m[2] || 0) * 3600 + (m[3] || 0) * 60 + +(m[4] || 0));
    else if (/(Z|[+-]\d\d:\d\d)$/.test(text)) at = Date.parse(text);
    else if (/^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?( UTC)?$/.test(text)) at = Date.parse(text.replace(" UTC", "").replace(" ", "T").padEnd(16, "T00:00").slice(0, 19) + (isLocal() ? "" : "Z"));
    if (isNaN(at)) { out.textContent = ""; return; }
    const d = new Date(at), s = Math.round((at - Date.now()) / 1000), a = Math.abs(s);
    const span = a < 120 ? a + " seconds" : a < 7200 ? Math.round(a / 60) + " minutes" : a < 172800 ? Math.round(a / 3600) + " hours" : Math.round(a / 86400) + " days";
    out.textContent = `${utcText(d)} UTC, ${localText(d)} ${zoneName}, ${s < 0 ? span + " ago" : "in " + span}`;
  }
  document.addEventListener("input", e => { if (e.target.matches("[data-instant]")) echo(e.target); });

  // A live part pauses while the button is pressed, and counts what is newer.
  let paused = false, newer = 0;
  document.addEventListener("click", e => {
    if (!e.target.matches("[data-pause]")) return;
    paused = !paused; newer = 0;
    e.target.textContent = paused ? "Continue" : "Pause";
    e.target.setAttribute("aria-pressed", String(paused));
    each(document, "[data-newer]", n => { n.textContent = paused ? "paused" : ""; });
    if (!paused) location.reload();
  });
  document.addEventListener("htmx:sseBeforeMessage", e => {
    if (!paused) return;
    e.preventDefault(); newer++;
    each(document, "[data-newer]", n => { n.textContent = newer + " newer"; });
  });
  document.addEventListener("htmx:sseError", () => each(document, "[data-newer]", n => { n.textContent = "not connected; trying again"; }));
  document.addEventListener("htmx:sseOpen", e => { source = e.detail.source; if (!paused) each(document, "[data-newer]", n => { n.textContent = ""; }); });
  // A page that is not seen holds no connection: a browser has six for a host.
  let source = null, closed = false;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && source) { source.close(); closed = true; }
    else if (!document.hidden && closed && !paused) location.reload();
  });
  document.addEventListener("htmx:afterSwap", e => { times(e.target); charts(e.target, true); });
  document.addEventListener("htmx:sseMessage", () => {
    each(document, "[data-most]", e => { times(e); while (e.rows.length > Number(e.dataset.most)) e.deleteRow(-1); }); const l = document.getElementById("live"); if (l) { times(l); tick(l); } });

  // A chart draws the table in its figure, and takes the points of the live part.
  const plots = [];
  function charts(where) {
    each(where, "figure.chart", f => {
      if (f.dataset.drawn || typeof uPlot === "undefined") return;
      const table = f.querySelector("table"), names = [...table.tHead.rows[0].cells].map(c => c.textContent), data = names.map(() => []);
      for (const row of table.tBodies[0].rows) [...row.cells].forEach((c, i) => data[i].push(i ? Number(c.dataset.v ?? c.textContent) : Date.parse(c.querySelector("time").dateTime) / 1000));
      const css = getComputedStyle(document.documentElement), ink = css.getPropertyValue("--pico-color"), grid = { stroke: css.getPropertyValue("--pico-muted-border-color"), width: 1 };
      const colours = ["#0172ad", "#c2570c", "#2a7f3f", "#8e44ad", "#b3261e"];
      const u = new uPlot({ width: f.clientWidth || 600, height: 170, axes: [{ stroke: ink, grid, values: (_, at) => at.map(t => (isLocal() ? localText : utcText)(new Date(t * 1000)).slice(11, 16)) }, { stroke: ink, grid, size: 60 }], scales: { x: { range: (_, lo, hi) => [Math.min(lo, hi - 600), hi] }, y: { range: (_, lo, hi) => [0, Math.max(1, hi * 1.1)] } },
        series: names.map((n, i) => i ? { label: n, stroke: colours[(i - 1) % 5], width: 2 } : {}) }, data, f);
      f.dataset.drawn = "1"; plots.push({ u, f, data, keys: names });
      const box = document.createElement("details"), sum = document.createElement("summary"); sum.textContent = "As a table";
      box.append(sum, table); f.append(box);
      new ResizeObserver(() => u.setSize({ width: f.clientWidth, height: 170 })).observe(f);
    });
  }
  function tick(live) {
    const point = live.querySelector("data[data-point]");
    if (!point) return;
    const values = JSON.parse(point.value);
    for (const p of plots) {
      if (!(p.f.dataset.series in values)) continue;
      const row = values[p.f.dataset.series];
      if (p.data[0].length && row[0] <= p.data[0][p.data[0].length - 1]) continue;
      p.data.forEach((d, i) => { d.push(row[i]); if (d.length > 600) d.shift(); });
      p.u.setData(p.data);
    }
  }
  document.addEventListener("DOMContentLoaded", () => { times(document); each(document, "[data-pause]", b => { b.hidden = false; }); each(document, "[data-instant]", echo); charts(document); });
})();
