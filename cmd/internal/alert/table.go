package alert

import (
	"slices"
	"time"
)

// Severity is who is to look, and when.
type Severity string

// The severities.
const (
	Page Severity = "page" // a person now
	Warn Severity = "warn" // a person on this day
	Info Severity = "info" // a person who wants to know why
)

// Rule is an alert.
type Rule struct {
	Name     string
	Group    string
	Severity Severity
	// For is how long the condition holds before the alert fires.
	For  time.Duration
	When Condition
	// Summary is the failure; it may have Prometheus's templates. Action is the next step, for readers of the console as well.
	Summary, Action string
	// Why is for readers of the file; "" = the row explains itself.
	Why string
}

// Window is how far back its condition looks.
func (r Rule) Window() (longest time.Duration) {
	for _, one := range r.When.reads() {
		longest = max(longest, one.within)
	}
	return longest
}

// Rules are all alerts, by group.
var Rules = slices.Concat(due, lanes, tables, servers)

// due are the alerts about expiries and reminders.
var due = []Rule{
	{
		Name: "ScripDueWorkIsLate", Group: "scrip-time", Severity: Page, For: 30 * time.Second,
		When: Above{of("scrip_scheduler_oldest_due_age_seconds", "lane", "priority"), 10},
		Why: `The most important number: how long the oldest due expiry or reminder has waited.
Redeeming is not affected: an expired coupon is refused whether or not its expiry was announced.`,
		Summary: "Lane {{ $labels.lane }}, {{ $labels.priority }}: expiries or reminders are {{ $value | humanizeDuration }} late",
		Action:  "Look at `scrip status`, or Due in the console. If the lane is owned and busy, raise reminder.rate with `scrip config set`, or add a server. If the lane has no owner, see ScripLaneHasNoOwner.",
	},
	{
		Name: "ScripSchedulerDoesNotWork", Group: "scrip-time", Severity: Page, For: 2 * time.Minute,
		When:    Without{of(Owned, "lane"), of("scrip_scheduler_caught_up", "lane")},
		Why:     "Without a scheduler there is no age: the rule above does not fire then.",
		Summary: "Lane {{ $labels.lane }} has an owner, but expiries are not announced and reminders do not fire",
		Action:  "The owner's log has the error of its scheduler: a full disk, unreadable settings, streams that do not match. Or no server has both roles, lanes and scheduler.",
	},
	{
		Name: "ScripRemindersAreDropped", Group: "scrip-time", Severity: Warn,
		When:    Grew{Of: of("scrip_scheduler_reminders_dropped_total", "lane"), Within: 5 * time.Minute},
		Summary: "Lane {{ $labels.lane }} dropped {{ $value | humanize }} reminders",
		Action:  "What they announce had passed, they were later than their campaign's late_after, or their campaign had ended. A scheduler that was down, or a pause, is the usual reason; `scrip config changes` shows pauses.",
	},
	{
		Name: "ScripSchedulersDisagree", Group: "scrip-time", Severity: Page,
		When:    Grew{Of: of("scrip_scheduler_disagreements_total", "lane"), Within: 10 * time.Minute},
		Summary: "Lane {{ $labels.lane }}: the log fired another number of reminders than were set",
		Action:  "Keep the log and report it. Claims and redemptions are not affected.",
	},
}

// lanes are the alerts about decisions and the log.
var lanes = []Rule{
	{
		Name: "ScripLaneHasNoOwner", Group: "scrip-lanes", Severity: Page, For: 30 * time.Second,
		When:    Nowhere{of(Owned, "lane")},
		Summary: "No server owns lane {{ $labels.lane }}: its claims and redemptions wait",
		Action:  "`scrip status` shows why the lane stopped and the next step.",
	},
	{
		Name: "ScripLaneStopped", Group: "scrip-lanes", Severity: Page,
		When:    Grew{Of: of("scrip_lane_stopped_total", "lane"), Within: 5 * time.Minute},
		Summary: "Lane {{ $labels.lane }} stopped because its log is inconsistent",
		Action:  "`scrip status` shows the inconsistency and how to rebase. Do not restart in a loop.",
	},
	{
		Name: "ScripClockWasSetAhead", Group: "scrip-lanes", Severity: Page,
		When:    Above{of("scrip_clock_step_seconds", "instance"), 0},
		Summary: "The clock of {{ $labels.instance }} was set {{ $value | humanizeDuration }} ahead; its lanes wait, so that nothing expires too early",
		Action:  "Correct the clock. If it is correct, as after a pause of a virtual machine, accept it with `scrip config set clock.accepted now`, from a machine whose clock is correct.",
	},
	{
		Name: "ScripLaneWaitsForClock", Group: "scrip-lanes", Severity: Page, For: 10 * time.Second,
		When:    Above{of("scrip_lane_waiting_for_clock", "lane"), 0},
		Summary: "Lane {{ $labels.lane }} waits: commands are stamped in the future",
		Action:  "Compare the clocks of the machines that run NATS and scrip.",
	},
	{
		Name: "ScripLogTakesNoWrites", Group: "scrip-lanes", Severity: Page, For: time.Minute,
		When:    Grew{Of: of("scrip_lane_writes_unknown_total", "lane"), Within: time.Minute, Most: 5},
		Summary: "Writes of lane {{ $labels.lane }} are not acknowledged",
		Action:  "Check the disk of NATS first, then its logs. Commands are not answered until writes succeed; none is lost.",
	},
	{
		Name: "ScripSlowWrites", Group: "scrip-lanes", Severity: Warn, For: 5 * time.Minute,
		When:    Quantile{of("scrip_lane_write_seconds", "lane"), 0.99, 5 * time.Minute, 0.25},
		Summary: "Lane {{ $labels.lane }}: one write of a hundred takes {{ $value | humanizeDuration }}",
		Action:  "The disk under NATS is slow or shared.",
	},
	{
		Name: "ScripCommandsNotStored", Group: "scrip-lanes", Severity: Page, For: time.Minute,
		When:    Grew{Of: of("scrip_command_not_durable_total", "instance"), Within: 5 * time.Minute},
		Summary: "The log refused {{ $value | humanize }} commands of {{ $labels.instance }}: it could not store them",
		Action:  "The disk of NATS is full, or a command stream is because its lane does not decide: `scrip status` shows the disk, UNDECIDED and the reason. The commands had no effect; callers retry.",
	},
	{
		Name: "ScripCommandDeadLetters", Group: "scrip-lanes", Severity: Warn,
		When:    Grew{Of: of(`scrip_lane_outcomes_total{outcome="invalid"}`, "lane"), Within: 15 * time.Minute},
		Summary: "Lane {{ $labels.lane }} refused {{ $value | humanize }} command lines as invalid; they are dead letters",
		Action:  "`scrip deadletter list`, or Dead letters in the console, shows the lines and the reasons. Mend the program that sends them; `scrip deadletter retry` sends a mended line.",
	},
	{
		Name: "ScripLogLosesEvents", Group: "scrip-lanes", Severity: Page,
		When:    Above{of("scrip_log_endangered"), 0},
		Why:     "No wait: a setting that deletes deletes at once.",
		Summary: "The settings of {{ $value }} streams can delete events or keep new ones out, or an event stream has lost its begin",
		Action:  "`scrip status` names the stream and the setting. Put the setting back now; what is deleted already comes back with `scrip restore` of the last good backup. Find out who may change streams.",
	},
	{
		Name: "ScripLogSettingsDiffer", Group: "scrip-lanes", Severity: Warn, For: 5 * time.Minute,
		When:    Above{of("scrip_log_settings_differ"), 0},
		Summary: "{{ $value }} streams of the log have other settings than scrip gives them; no event is in danger",
		Action:  "`scrip doctor` and the log of each server name the stream and the difference. Put it back, or find out why it was changed.",
	},
	{
		Name: "ScripStreamFull", Group: "scrip-lanes", Severity: Warn,
		When:    Above{of("scrip_log_stream_full", "stream"), 0.9},
		Summary: "Stream {{ $labels.stream }} has used {{ $value | humanizePercentage }} of its bound; when it is full it refuses what is new",
		Action:  "RUNBOOK, Limits, has what that means for each stream, and what to do.",
	},
	{
		Name: "ScripNodeLags", Group: "scrip-lanes", Severity: Page, For: 150 * time.Second,
		When:    Above{of("scrip_nats_node_lag", "node"), 0},
		Why:     "A node that is away counts with what it lacks, or 1. Each server looks once a minute: a short restart is seen by two looks at most.",
		Summary: "The copies of the log on {{ $labels.node }} lack {{ $value | humanize }} messages: one more node that fails may stop the log",
		Action:  "Is that nats-server running, is its disk full, does the network reach it? If it runs and does not catch up, restart it: it copies what it lacks.",
	},
	{
		Name: "ScripForeignMessages", Group: "scrip-lanes", Severity: Warn,
		When:    Grew{Of: of("scrip_lane_foreign_messages_total", "lane"), Within: 10 * time.Minute},
		Summary: "Another client published foreign messages on the event stream of lane {{ $labels.lane }}",
		Action:  "Readers ignore them. Find the client that may publish there, and revoke that permission.",
	},
	{
		Name: "ScripRepliesRefused", Group: "scrip-lanes", Severity: Warn,
		When:    Grew{Of: of("scrip_replies_refused_total", "place"), Within: 10 * time.Minute},
		Summary: "Clients request replies on subjects that are not inboxes ({{ $labels.place }})",
		Action:  "No reply was published there. Either a client's inbox prefix does not begin with _INBOX, or this is an attempt to publish with scrip's rights.",
	},
	{
		Name: "ScripRequestsDropped", Group: "scrip-lanes", Severity: Warn,
		When:    Grew{Of: of("scrip_requests_dropped_total", "endpoint"), Within: 5 * time.Minute},
		Summary: "Requests on {{ $labels.endpoint }} come faster than a server parses them",
		Action:  "Their senders retry. Find the sender of so many requests, or add servers with the role api.",
	},
	{
		Name: "ScripSnapshotsAreOld", Group: "scrip-lanes", Severity: Warn, For: 10 * time.Minute,
		When:    Above{of("scrip_lane_events_since_snapshot", "lane"), 20e6},
		Summary: "Lane {{ $labels.lane }}: a restart would replay {{ $value | humanize }} events",
		Action:  "Snapshots fail; the server's log has the error.",
	},
}

// tables are the alerts about read tables and deliveries.
var tables = []Rule{
	{
		Name: "ScripPostgresDown", Group: "scrip-tables", Severity: Page, For: time.Minute,
		When:    Below{Of: of("scrip_postgres_up", "instance"), Bound: 1},
		Summary: "{{ $labels.instance }} gets no answer from its PostgreSQL",
		Action:  "Claims and redemptions are served; look-ups of rows, histories and exports are not. Start PostgreSQL, or mend the way to it; the private one is restarted by its server, whose log has the reason. The tables catch up without help.",
	},
	{
		Name: "ScripRevokedKeysMayRead", Group: "scrip-tables", Severity: Page, For: 30 * time.Second,
		When:    Above{of("scrip_analysts_unguarded_seconds", "instance"), 10},
		Summary: "{{ $labels.instance }} has not ended sessions of revoked analysts in PostgreSQL for {{ $value | humanizeDuration }}",
		Action:  "Check `analysts` of `/readyz` has the reason. If PostgreSQL is down, start it; see ScripPostgresDown. Else end the sessions of users analyst_… by pg_terminate_backend, as a superuser.",
	},
	{
		Name: "ScripTablesHaveNoProjector", Group: "scrip-tables", Severity: Warn, For: 5 * time.Minute,
		When:    Nowhere{of(Followed, "lane")},
		Summary: "No server fills the read tables of lane {{ $labels.lane }}",
		Action:  "Claims and redemptions are served. `scrip status` shows the state of the tables and the reason. If it is waiting or standby, that names the session which has the projector's lock, and how to end it: of another program, of another log's server, or one that PostgreSQL has not closed yet.",
	},
	{
		Name: "ScripTablesAreBehind", Group: "scrip-tables", Severity: Warn, For: 5 * time.Minute,
		When:    Above{of("scrip_projection_lag_seconds", "lane"), 60},
		Summary: "The read tables of lane {{ $labels.lane }} lag by {{ $value | humanizeDuration }}",
		Action:  "Claims and redemptions are served. Check PostgreSQL: connections, disk, long transactions.",
	},
	{
		Name: "ScripTablesStopped", Group: "scrip-tables", Severity: Page, For: time.Minute,
		When:    Above{of("scrip_projection_stopped", "lane"), 0},
		Summary: "The projector of lane {{ $labels.lane }} has stopped",
		Action:  "`scrip status`, or Tables in the console, shows the error; `scrip rebuild` makes the tables from the log.",
	},
	{
		Name: "ScripSegmentsAreOverdue", Group: "scrip-tables", Severity: Warn, For: 5 * time.Minute,
		When:    Above{of("scrip_projection_segments_overdue", "instance"), 0},
		Summary: "{{ $value | humanize }} tables of coupons are kept by transactions in PostgreSQL that do not end",
		Action:  "Claims are projected; look-ups get slower with each such table. End the oldest transactions in PostgreSQL, see \"Merged tables remain\" in RUNBOOK.md.",
	},
	{
		Name: "ScripDeadLetters", Group: "scrip-tables", Severity: Warn,
		When:    Grew{Of: of("scrip_projection_poison_total", "lane"), Within: 15 * time.Minute},
		Summary: "{{ $value | humanize }} events of lane {{ $labels.lane }} became dead letters",
		Action:  "`scrip deadletter list`, or Dead letters in the console, shows them with their reasons.",
	},
	{
		Name: "ScripNotDelivered", Group: "scrip-tables", Severity: Warn, For: 5 * time.Minute,
		When:    Above{of("scrip_push_oldest_seconds", "name", "lane"), 3600},
		Summary: "{{ $labels.name }} has not delivered reminders or events of lane {{ $labels.lane }} for {{ $value | humanizeDuration }}",
		Action:  "Push sender: is a process running, does its gateway work? Webhook: `scrip webhook show ID`, `scrip webhook test ID`, or Webhooks in the console. What is older than the maximum age becomes dead letters.",
	},
	{
		Name: "ScripPushDead", Group: "scrip-tables", Severity: Warn,
		When:    Grew{Of: of("scrip_push_dead_total", "name"), Within: time.Hour, Kept: true},
		Summary: "{{ $labels.name }} gave up reminders or events",
		Action:  "Push sender: `pushsender dead`, then `pushsender retry`. Webhook: `scrip webhook deadletters ID`, then `scrip webhook retry ID`. Reminders and Webhooks in the console show them, too.",
	},
	{
		Name: "ScripWebhookDisabled", Group: "scrip-tables", Severity: Warn,
		When:    Above{of(`scrip_webhooks{state="disabled"}`), 0},
		Why:     "One that a person has paused is not among them.",
		Summary: "{{ $value }} webhooks are disabled and get nothing: their endpoints failed for five days, or answered 410",
		Action:  "`scrip webhook list`, or Webhooks in the console, shows which, and `scrip webhook show ID` why. Mend the endpoint, try it with `scrip webhook test ID`, then `scrip webhook resume ID`; or delete the webhook.",
	},
	{
		Name: "ScripConfigIgnored", Group: "scrip-tables", Severity: Warn,
		When:    Grew{Of: of("scrip_config_ignored_total", "instance"), Within: 15 * time.Minute},
		Summary: "{{ $labels.instance }} ignores an invalid setting; the last valid value is in force",
		Action:  "`scrip config changes`, or Settings in the console, shows the setting and the reason.",
	},
}

// servers are the alerts about processes, machines and clients.
var servers = []Rule{
	{
		Name: "ScripDown", Group: "scrip-server", Severity: Page, For: 30 * time.Second,
		When:    Elsewhere(`up{job="scrip"} == 0`),
		Summary: "{{ $labels.instance }} does not answer",
		Action:  "Its lanes move to another server within seconds, if there is one.",
	},
	{
		Name: "ScripRequestsFail", Group: "scrip-server", Severity: Page, For: time.Minute,
		When:    Faster{of(`scrip_requests_total{result="failed"}`), time.Minute, 1},
		Summary: "{{ $value | humanize }} requests a second end without a known result",
		Action:  "Callers retry with the same id and lose nothing. Check for ScripLaneHasNoOwner and ScripLogTakesNoWrites.",
	},
	{
		Name: "ScripDiskFills", Group: "scrip-server", Severity: Warn, For: 5 * time.Minute,
		When:    Below{of("scrip_disk_free_bytes", "instance", "place"), of("scrip_disk_size_bytes", "instance", "place"), 0.15},
		Summary: "The disk of {{ $labels.place }} of {{ $labels.instance }} has {{ $value | humanizePercentage }} left",
		Action:  "`scrip status` shows how much is left and when it is full. The log is kept for ever: enlarge the disk. Tables shrink with `scrip rebuild --drop-previous` and tables.keep.",
	},
	{
		Name: "ScripDiskIsFull", Group: "scrip-server", Severity: Page, For: time.Minute,
		When:    Below{of("scrip_disk_free_bytes", "instance", "place"), of("scrip_disk_size_bytes", "instance", "place"), 0.05},
		Summary: "The disk of {{ $labels.place }} of {{ $labels.instance }} has {{ $value | humanizePercentage }} left",
		Action:  "On a full disk commands are refused and had no effect. Make room now; JetStream is restarted when there is some. `scrip status` shows when the disk is full.",
	},
	{
		Name: "ScripCertificateExpires", Group: "scrip-server", Severity: Warn,
		When:    Until{of("scrip_tls_expires_timestamp_seconds", "instance"), 14 * 24 * time.Hour},
		Summary: "The TLS certificate of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}",
		Action:  "Replace the files of --tls-cert and --tls-key; a server reads them within seconds, without a restart.",
	},
	{
		Name: "ScripCertificateExpiresSoon", Group: "scrip-server", Severity: Page,
		When:    Until{of("scrip_tls_expires_timestamp_seconds", "instance"), 2 * 24 * time.Hour},
		Summary: "The TLS certificate of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}",
		Action:  "Clients refuse the server after that. Replace the files of --tls-cert and --tls-key; a server reads them within seconds, without a restart.",
	},
	{
		Name: "ScripLimitReached", Group: "scrip-server", Severity: Warn,
		When:    Grew{Of: of("scrip_limit_refused_total", "instance", "limit"), Within: 15 * time.Minute},
		Summary: "{{ $labels.instance }} refused or closed {{ $value | humanize }} over the limit {{ $labels.limit }}",
		Action:  "`scrip status` lists the limits with what is used of them and refused. RUNBOOK, Limits: what each means and how to raise it.",
	},
	{
		Name: "ScripServerMayNot", Group: "scrip-server", Severity: Page,
		When:    Grew{Of: of("scrip_nats_violations_total", "instance"), Within: 10 * time.Minute},
		Summary: "NATS refused {{ $value | humanize }} times what {{ $labels.instance }} must do: a part of it does not work",
		Action:  "The server's log names the subject. With NATS servers of your own: print the accounts of this version again and load them. Else it is a defect: report it.",
	},
	{
		Name: "ScripBackupIsOld", Group: "scrip-server", Severity: Warn,
		When:    Exceeds{of("scrip_backup_age_seconds"), of("scrip_backup_age_limit_seconds")},
		Summary: "The last good backup is {{ $value | humanizeDuration }} old",
		Action:  "`scrip status` shows it, `scrip job list` how the last one ended. Take one with `scrip backup NAME`, and look at what is to take them.",
	},
	{
		Name: "ScripLogLinesDropped", Group: "scrip-server", Severity: Warn,
		When:    Grew{Of: of("scrip_log_lines_dropped_total", "instance"), Within: 15 * time.Minute},
		Summary: "{{ $labels.instance }} dropped {{ $value | humanize }} lines of its log: its reader is slow or gone",
		Action:  "The server works on. Look at what reads its output: the container's log driver, the journal, a pipe.",
	},
	{
		Name: "ScripCodesAreGuessed", Group: "scrip-server", Severity: Warn, For: 5 * time.Minute,
		When: Either{
			Faster{of("scrip_wrong_codes_total", "budget"), 5 * time.Minute, 5},
			Faster{of("scrip_wrong_codes_refused_total", "budget"), 5 * time.Minute, 1},
		},
		Why:     "A public key has 600 wrong codes a minute, a client address 5. Typing errors of customers are far below this.",
		Summary: "{{ $value | humanize }} wrong or refused codes a second (budget {{ $labels.budget }}): a client guesses codes",
		Action:  "Guessing has no chance with generated codes; short imported ones can be guessed. The access log of the proxy shows the addresses, `scrip access list -o json`, or Access in the console, the wrong codes of each key in this hour; `scrip access revoke` ends a key. With budget log they come straight to the log: `scrip.refusal_stats` shows their campaigns, and keys of role producer may send them. If all clients seem to have one address, see --http-trusted-proxies.",
	},
	{
		Name: "ScripClientsAreRateLimited", Group: "scrip-server", Severity: Info, For: 10 * time.Minute,
		When:    Faster{of("scrip_rate_limited_total"), 5 * time.Minute, 1},
		Summary: "{{ $value | humanize }} requests a second are refused because their key has used its rate",
		Action:  "Let the client send many commands in one request (POST /v1/commands), or raise http.rate with `scrip config set`; `scrip access list` shows the keys with a rate of their own, which counts each command.",
	},
}
