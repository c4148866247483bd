package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

func (m *Main) campaignCommand() *cobra.Command {
	state := func(verb string, t wire.CommandType, short string) *cobra.Command {
		return m.line(lineCommand{use: verb + " NAME", short: short, t: t})
	}
	return cli.Group("campaign", "Create, change and show campaigns",
		m.line(lineCommand{
			use: "create NAME --codes N", short: "Create a campaign", t: wire.CreateCampaign,
			long: `Create a campaign. The same request again with the same settings is a repeat; with other settings it is refused
(campaign_exists). opens < closes <= expires.`,
			example: `  scrip campaign create summer --codes 1000 --expires 2026-12-31T23:00:00Z --benefit '{"percent":10}'
  scrip campaign create flash --codes 10000 --opens +10m --closes +70m --valid-for 72h --prefix FLASH
  scrip campaign create partner --codes 0        # then: scrip codes import partner codes.csv`,
		}),
		m.line(lineCommand{
			use: "update NAME", short: "Change settings of a campaign", t: wire.UpdateCampaign,
			long: `Change settings of a campaign; settings not given do not change. Coupons without an expiry of their own get the campaign's
new expiry, and reminders move with it. --codes may only grow.`,
			example: `  scrip campaign update summer --codes 2000 --expires +720h
  scrip campaign update summer --opens none`,
		}),
		state("pause", wire.PauseCampaign, "Pause a campaign: claims and redemptions are refused until it is resumed"),
		state("resume", wire.ResumeCampaign, "Resume a paused campaign"),
		state("end", wire.EndCampaign, "End a campaign permanently: claims are refused, coupons already claimed stay valid"),
		m.listCampaigns(),
		m.query(&cobra.Command{Use: "show NAME", Short: "Show one campaign", Args: cli.Args("NAME")}, m.showCampaign),
		m.campaignClone(), m.campaignDiff(), m.campaignStatistics(), m.campaignChanges())
}

func (m *Main) listCampaigns() *cobra.Command {
	var page client.Page
	cmd := &cobra.Command{Use: "list", Short: "List campaigns, by name", Args: cli.NoArgs}
	pageFlags(cmd, &page)
	return m.query(cmd, func(ctx context.Context, s *session, _ []string) error {
		all, next, err := s.Campaigns(ctx, page)
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, ops.Page[domain.CampaignView]{Items: all, Next: next})
		}
		var rows [][]string
		for _, c := range all {
			codes := strconv.FormatUint(uint64(c.Codes), 10)
			if c.Imported {
				codes += " imported"
			}
			rows = append(rows, []string{c.Campaign, c.Status, codes, fmt.Sprint(c.Claimed), fmt.Sprint(c.Redeemed), fmt.Sprint(c.Voided),
				orDash(c.OpensAt), orDash(c.ClosesAt), orDash(c.ExpiresAt)})
		}
		return m.table(next, "CAMPAIGN STATUS CODES CLAIMED REDEEMED VOIDED OPENS CLOSES EXPIRES", rows)
	})
}

func (m *Main) showCampaign(ctx context.Context, s *session, args []string) error {
	c, err := s.Campaign(ctx, args[0])
	if err != nil {
		return err
	}
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, c)
	}
	each := fmt.Sprint(c.PerCustomer)
	if c.PerCustomer == 0 || c.PerCustomer == math.MaxUint32 {
		each = "any number"
	}
	return cli.Fields(m.Out, filled([][2]string{
		{c.Campaign, ""},
		{"status", c.Status}, {"codes", fmt.Sprint(c.Codes)}, {"claimed", fmt.Sprint(c.Claimed)},
		{"redeemed", fmt.Sprint(c.Redeemed)}, {"voided", fmt.Sprint(c.Voided)},
		{"per customer", each}, {"max redemptions", fmt.Sprint(c.MaxRedemptions)},
		{"opens", orDash(c.OpensAt)}, {"closes", orDash(c.ClosesAt)}, {"expires", orDash(c.ExpiresAt)},
		{"reminders pending", strconv.Itoa(c.Reminders)}, {"priority", c.Priority}, {"created", c.CreatedAt.Format(time.RFC3339Nano)},
		{"valid for", c.ValidFor}, {"late after", c.LateAfter}, {"prefix", c.Prefix}, {"category", c.Category}, {"benefit", string(c.Benefit)},
	}))
}
