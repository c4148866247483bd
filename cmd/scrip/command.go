package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// fieldFlag is the flag of a field of package wire.
type fieldFlag struct {
	field, flag string
	form        form
	setting     bool // of a campaign
	usage       string
}

// fieldFlags are the flags of commands. Which of them a command has follows from the table of commands; bounds are checked there.
var fieldFlags = []fieldFlag{
	{"codes", "codes", number, true, "coupons to hand out; 0 = codes are imported. May grow later"},
	{"per_customer", "per-customer", number, true, "coupons one customer may claim; 0 = any number (default 1)"},
	{"opens_at", "opens", moment, true, "when claims open (absent = now)"},
	{"closes_at", "closes", moment, true, "when claims close (absent = when coupons expire)"},
	{"expires_at", "expires", moment, true, "when coupons expire (absent = never)"},
	{"valid_for", "valid-for", period, true, "how long a coupon lives from its claim, instead of --expires"},
	{"late_after", "late-after", period, true, "reminders later than this are dropped (absent = only when what they announce has passed)"},
	{"max_redemptions", "max-redemptions", number, true, "how often one coupon may be redeemed (default 1)"},
	{"reminders", "reminders", number, true, "reminders that may be pending (default 3 for each code, at least 10,000)"},
	{"prefix", "prefix", text, true, "printed before each code, without a function: SUMMER gives SUMMER-XXXX-XXXX-XXXX"},
	{"category", "category", text, true, "groups campaigns in reports"},
	{"priority", "priority", text, true, "high, normal or low (default normal)"},
	{"benefit", "benefit", object, true, "what a coupon is worth, returned when it is redeemed, at most 512 bytes"},
	{"customer_id", "customer", text, false, "`ID` of the customer; for a redemption or a rollback, who must then be the holder"},
	{"attributes", "attributes", object, false, "flat JSON object stored with the claim, for reports, at most 1 KiB"},
	{"order_id", "order", text, false, "`ID` of the order the coupon is used for"},
	{"reason", "reason", text, false, "stored with the event"},
	{"count", "count", number, false, "coupons to allot"},
	{"batch", "batch", text, false, "name of the allotment, once in a campaign: 1 to 64 of A-Z a-z 0-9 _ -"},
	{"kind", "kind", text, false, "what the reminder announces: opens or expires"},
	{"before", "before", period, false, "how long before it"},
	{"zone", "zone", text, false, "the customer's time zone, such as Europe/Berlin, by which quiet hours and days count"},
	{"n", "n", number, false, "number of the coupon in its campaign, instead of CODE"},
}

// lineCommand is a command that a lane decides. Its argument is the campaign, or the code.
type lineCommand struct {
	use, short, long, example string
	t                         wire.CommandType
}

// takes reports whether the type of command takes a field.
func (c *lineCommand) takes(f *fieldFlag) bool {
	spec := c.t.Spec()
	named := func(of wire.Field) bool { return of.String() == f.field }
	return f.setting && spec.Settings || slices.ContainsFunc(spec.Required, named) || slices.ContainsFunc(spec.Optional, named)
}

// line makes the command: its flags, from the table of commands; the line, which package wire reads and checks; its outcome.
func (m *Main) line(c lineCommand) *cobra.Command {
	given := fields{}
	cmd := &cobra.Command{Use: c.use, Short: c.short, Long: c.long, Example: c.example, Args: cli.Args(argument(c.use))}
	id := idFlag(cmd, true)
	var required []string
	for i := range fieldFlags {
		f := &fieldFlags[i]
		if !c.takes(f) {
			continue
		}
		as, usage := f.form, f.usage
		if c.t == wire.UpdateCampaign {
			as, usage = as.orNone(), usage+"; none clears it"
		}
		m.flag(cmd.Flags(), given, f.flag, f.field, as, usage)
		if slices.ContainsFunc(c.t.Spec().Required, func(of wire.Field) bool { return of.String() == f.field }) {
			required = append(required, f.flag)
		}
	}
	if c.t.HasCode() {
		cmd.Args = codeArgs
		m.flag(cmd.Flags(), given, "campaign", "campaign", form{"NAME", text.parse}, "of the coupon's campaign; required for imported codes, and with --n")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.Require(cmd, required...); err != nil {
			return err
		}
		switch {
		case !c.t.HasCode():
			given["campaign"] = args[0]
		case len(args) > 0:
			given["code"] = codeOf(args)
		}
		given["type"], given["id"] = c.t.String(), *id
		if !cmd.Flags().Changed("id") {
			given["id"] = uuid.Must(uuid.NewV7()).String()
		}
		line, err := json.Marshal(given)
		if err != nil {
			return err
		}
		var command wire.Command
		if err := wire.ParseCommand(line, wire.Defaults{}, &command); err != nil {
			return m.badLine(err, command.ID)
		}
		return m.do(cmd, command)
	}
	return cmd
}

// argument is the name of the first argument in a usage.
func argument(use string) string {
	_, rest, _ := strings.Cut(use, " ")
	name, _, _ := strings.Cut(rest, " ")
	return name
}

// badLine is the error of a command that no lane would accept: wrong usage where a flag is wrong, else the refusal that a lane
// would give.
func (m *Main) badLine(err error, id string) error {
	var invalid *wire.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	for i := range fieldFlags {
		if f := &fieldFlags[i]; f.field == invalid.Field {
			return cli.Usagef("--%s: %s", f.flag, invalid.Message)
		}
	}
	if invalid.Field == "" || invalid.Field == "id" {
		return &cli.UsageError{Err: err}
	}
	return m.answer(wire.Outcome{ID: id, Status: wire.StatusRefused, Refusal: wire.Invalid, Message: err.Error()})
}

// do sends a command and prints its outcome.
func (m *Main) do(cmd *cobra.Command, c wire.Command) error {
	s, err := m.connect()
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := s.bounded(cmd.Context(), m.global.timeout)
	defer cancel()
	out, err := s.Do(ctx, c)
	if err != nil {
		return s.orDenied(explain(err))
	}
	return m.answer(out)
}

// codeArgs accepts one code, which may be typed in several arguments: MUS3 V5JE SQKN. It refuses two codes: the symbols
// before the last 12 would pass for a prefix, and the first code would be ignored silently.
func codeArgs(cmd *cobra.Command, given []string) error {
	switch byN := cmd.Flags().Changed("n"); {
	case byN && len(given) > 0:
		return cli.Usagef("%s takes CODE, or --campaign and --n, not both", cli.Path(cmd))
	case byN:
		return cli.Require(cmd, "campaign")
	case len(given) == 0:
		return cli.Usagef("%s needs CODE, or --campaign and --n", cli.Path(cmd))
	}
	for _, word := range given[:len(given)-1] {
		if len(strings.ReplaceAll(word, "-", "")) >= code.Symbols {
			return cli.Usagef("%s takes one CODE, not also %q; if both are one code, quote it", cli.Path(cmd), given[len(given)-1])
		}
	}
	return nil
}

func codeOf(given []string) string { return strings.Join(given, " ") }

// claims are the commands about coupons and reminders that lanes decide.
func (m *Main) claims() []*cobra.Command {
	order := func(use, short, long string, t wire.CommandType) lineCommand {
		return lineCommand{use: use + " CODE --order ID", short: short, long: long, example: "  scrip " + use + " 7KQ2-9F3M-XW4T --order 4711", t: t}
	}
	remind := func(use, short, long string, t wire.CommandType) lineCommand {
		return lineCommand{use: use + " CAMPAIGN --customer ID --kind opens|expires --before DURATION", short: short, long: long, t: t,
			example: "  scrip " + use + " flash --customer alice --kind opens --before 1m\n" +
				"  scrip " + use + " summer --customer alice --kind expires --before 24h"}
	}
	var all []*cobra.Command
	for _, c := range []lineCommand{
		{use: "claim CAMPAIGN --customer ID", short: "Claim a coupon for a customer", t: wire.Claim,
			long: `Claim a coupon for a customer. Where a customer may have one coupon, a second claim returns the same code. With --id a
claim can be retried after any failure: it takes effect once.`,
			example: `  scrip claim summer --customer alice
  scrip claim summer --customer alice --attributes '{"channel":"app"}' --id 0192f3c2 -o json`},
		order("redeem", "Redeem a coupon for an order",
			"Redeem a coupon for an order. A second request for the same order is a repeat. Case, spaces and hyphens in CODE do not matter.", wire.Redeem),
		order("rollback", "Roll back a redemption",
			"Roll back the redemption of an order: the coupon can be redeemed again, unless it has expired.", wire.Rollback),
		{use: "void CODE", short: "Void a coupon permanently", t: wire.Void,
			example: "  scrip void 7KQ2-9F3M-XW4T --reason fraud\n  scrip void --campaign summer --n 17 --reason fraud"},
		{use: "extend CODE --expires TIME", short: "Change the expiry of a coupon", t: wire.Extend,
			long:    "Give a coupon an expiry of its own, which must be in the future. An expired coupon becomes valid again.",
			example: "  scrip extend 7KQ2-9F3M-XW4T --expires +72h"},
		remind("remind", "Remind a customer before a campaign opens or a coupon expires",
			`Remind a customer: of kind opens, before claims of the campaign open; of kind expires, before the customer's newest
coupon expires. It fires once, and moves with the instant that it announces. Fired reminders are published to
SCRIP_RMD_<lane> and stored in the read table reminder.`, wire.Remind),
		remind("unremind", "Cancel a reminder that has not fired", "", wire.Unremind),
	} {
		all = append(all, m.line(c))
	}
	return all
}
