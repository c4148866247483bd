package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

func (m *Main) campaignCommand() *cobra.Command {
	return cli.Group("campaign", "Create, change and show campaigns",
		m.campaignCreate(), m.campaignUpdate(),
		m.campaignStateCommand("pause", wire.PauseCampaign, "Pause a campaign: claims and redemptions are refused until it is resumed"),
		m.campaignStateCommand("resume", wire.ResumeCampaign, "Resume a paused campaign"),
		m.campaignStateCommand("end", wire.EndCampaign, "End a campaign permanently: claims are refused, coupons already claimed stay valid"),
		m.campaignList(), m.campaignShow())
}

// settingNames are the flags of create and update, and their names in CONTRACT.md.
var settingNames = map[string]string{
	"codes": "codes", "per-customer": "per_customer", "opens": "opens_at", "closes": "closes_at", "expires": "expires_at",
	"valid-for": "valid_for", "late-after": "late_after", "max-redemptions": "max_redemptions", "reminders": "reminders", "prefix": "prefix", "category": "category",
	"priority": "priority", "benefit": "benefit",
}

// settingFlags adds the flags of a campaign's settings. In an update, none clears times and periods.
func (m *Main) settingFlags(f *pflag.FlagSet, s *wire.Settings, update bool) {
	d := wire.Settings{}
	clear := "; none clears it"
	if !update {
		d, clear = wire.DefaultSettings(0), ""
	}
	f.Var(cli.Number(&s.Codes, 0, 0, wire.MaxCodes), "codes", "coupons to hand out; 0 = codes are imported. May grow later")
	f.Var(cli.Number(&s.PerCustomer, d.PerCustomer, 0, wire.MaxPerCustomer), "per-customer", "coupons one customer may claim; 0 = any number")
	f.Var(m.instant(&s.OpensAt, update), "opens", "when claims open (absent = now)"+clear)
	f.Var(m.instant(&s.ClosesAt, update), "closes", "when claims close (absent = when coupons expire)"+clear)
	f.Var(m.instant(&s.ExpiresAt, update), "expires", "when coupons expire (absent = never)"+clear)
	period := func(into *time.Duration, most time.Duration) *cli.Value {
		return &cli.Value{Kind: "DURATION", Parse: func(text string) error {
			if update && text == none {
				*into = 0
				return nil
			}
			return cli.Duration(into, 0, time.Second, most).Parse(text)
		}}
	}
	f.Var(period(&s.ValidFor, wire.MaxValidFor), "valid-for", "how long a coupon lives from its claim, instead of --expires"+clear)
	f.Var(period(&s.LateAfter, wire.MaxBefore), "late-after", "reminders later than this are dropped (absent = only when what they announce has passed)"+clear)
	f.Var(cli.Number(&s.MaxRedemptions, d.MaxRedemptions, 1, wire.MaxRedemptions), "max-redemptions", "how often one coupon may be redeemed")
	f.Var(cli.Number(&s.Reminders, d.Reminders, 0, wire.MaxPending), "reminders", "reminders that may be pending (0 = 3 for each code, at least 10,000)")
	f.StringVar(&s.Prefix, "prefix", "", "`TEXT` printed before each code, without a function: SUMMER gives SUMMER-XXXX-XXXX-XXXX")
	f.StringVar(&s.Category, "category", "", "`TEXT` that groups campaigns in reports")
	f.Var(cli.Choice(&s.Priority, d.Priority, wire.PriorityHigh, wire.PriorityNormal, wire.PriorityLow), "priority", "high, normal or low")
	f.Var(cli.RawJSON(&s.Benefit), "benefit", "what a coupon is worth, returned when it is redeemed, at most 512 bytes")
}

// patch holds the settings whose flags were given.
func patch(f *pflag.FlagSet, s wire.Settings) wire.Patch {
	p := wire.Patch{Settings: s}
	f.Visit(func(flag *pflag.Flag) {
		if name, ok := settingNames[flag.Name]; ok {
			p.Set(name)
		}
	})
	return p
}

func (m *Main) campaignCreate() *cobra.Command {
	var s wire.Settings
	cmd := &cobra.Command{
		Use: "create NAME --codes N", Short: "Create a campaign", Args: cli.Args("NAME"),
		Long: `Create a campaign. The same request again with the same settings is a repeat; with other settings it is refused
(campaign_exists). opens < closes <= expires.`,
		Example: `  scrip campaign create summer --codes 1000 --expires 2026-12-31T23:00:00Z --benefit '{"percent":10}'
  scrip campaign create flash --codes 10000 --opens +10m --closes +70m --valid-for 72h --prefix FLASH
  scrip campaign create partner --codes 0        # then: scrip codes import partner codes.csv`,
	}
	m.settingFlags(cmd.Flags(), &s, false)
	return m.commandRunE(cmd, func(given []string) (wire.Command, error) {
		if err := cli.Require(cmd, "codes"); err != nil {
			return wire.Command{}, err
		}
		return wire.Command{Type: wire.CreateCampaign, Campaign: given[0], Patch: patch(cmd.Flags(), s)}, nil
	})
}

func (m *Main) campaignUpdate() *cobra.Command {
	var s wire.Settings
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change settings of a campaign", Args: cli.Args("NAME"),
		Long: `Change settings of a campaign; settings not given do not change. Coupons without an expiry of their own get the campaign's
new expiry, and reminders move with it. --codes may only grow.`,
		Example: `  scrip campaign update summer --codes 2000 --expires +720h
  scrip campaign update summer --opens none`,
	}
	m.settingFlags(cmd.Flags(), &s, true)
	return m.commandRunE(cmd, func(given []string) (wire.Command, error) {
		some := false
		cmd.Flags().Visit(func(f *pflag.Flag) { some = some || settingNames[f.Name] != "" })
		if !some {
			return wire.Command{}, cli.Usagef("%s needs at least one setting, such as --codes N or --expires TIME", cli.Path(cmd))
		}
		return wire.Command{Type: wire.UpdateCampaign, Campaign: given[0], Patch: patch(cmd.Flags(), s)}, nil
	})
}

func (m *Main) campaignStateCommand(name string, t wire.CommandType, short string) *cobra.Command {
	cmd := &cobra.Command{Use: name + " NAME", Short: short, Args: cli.Args("NAME")}
	return m.commandRunE(cmd, func(given []string) (wire.Command, error) {
		return wire.Command{Type: t, Campaign: given[0]}, nil
	})
}

func (m *Main) campaignList() *cobra.Command {
	return m.queryRunE(&cobra.Command{Use: "list", Short: "List all campaigns", Args: cli.NoArgs}, func(ctx context.Context, s *session, _ []string) error {
		campaigns, err := s.allCampaigns(ctx)
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			for _, c := range campaigns {
				if err := cli.JSON(m.Out, c); err != nil {
					return err
				}
			}
			return nil
		}
		var rows [][]string
		for _, c := range campaigns {
			codes := strconv.FormatUint(uint64(c.Codes), 10)
			if c.Imported {
				codes += " imported"
			}
			rows = append(rows, []string{c.Campaign, c.Status, codes, fmt.Sprint(c.Claimed), fmt.Sprint(c.Redeemed), fmt.Sprint(c.Voided),
				orDash(c.OpensAt), orDash(c.ClosesAt), orDash(c.ExpiresAt)})
		}
		return cli.Table(m.Out, "CAMPAIGN STATUS CODES CLAIMED REDEEMED VOIDED OPENS CLOSES EXPIRES", rows)
	})
}

func (m *Main) campaignShow() *cobra.Command {
	return m.queryRunE(&cobra.Command{Use: "show NAME", Short: "Show one campaign", Args: cli.Args("NAME")}, func(ctx context.Context, s *session, given []string) error {
		c, err := s.Campaign(ctx, given[0])
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, c)
		}
		rows := [][2]string{
			{c.Campaign, ""},
			{"status", c.Status}, {"codes", fmt.Sprint(c.Codes)}, {"claimed", fmt.Sprint(c.Claimed)},
			{"redeemed", fmt.Sprint(c.Redeemed)}, {"voided", fmt.Sprint(c.Voided)},
			{"per customer", orUnlimited(c.PerCustomer)}, {"max redemptions", fmt.Sprint(c.MaxRedemptions)},
			{"opens", orDash(c.OpensAt)}, {"closes", orDash(c.ClosesAt)}, {"expires", orDash(c.ExpiresAt)},
			{"reminders pending", strconv.Itoa(c.Reminders)}, {"priority", c.Priority}, {"created", c.CreatedAt.Format(time.RFC3339Nano)},
		}
		for _, r := range [][2]string{{"valid for", c.ValidFor}, {"late after", c.LateAfter}, {"prefix", c.Prefix}, {"category", c.Category}, {"benefit", string(c.Benefit)}} {
			if r[1] != "" {
				rows = append(rows, r)
			}
		}
		return cli.Fields(m.Out, rows)
	})
}

func orDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func orUnlimited(n uint32) string {
	if n == 0 || n == math.MaxUint32 {
		return "any number"
	}
	return fmt.Sprint(n)
}

// none clears a setting in an update.
const none = "none"

// instant is a time, absolute or from now. With clearable, "none" is the zero instant.
func (m *Main) instant(into *wire.Instant, clearable bool) *cli.Value {
	return &cli.Value{Kind: "TIME", Parse: func(s string) error {
		if clearable && s == none {
			*into = 0
			return nil
		}
		var err error
		*into, err = cli.ParseTime(s, m.Clock.Now())
		return err
	}}
}
