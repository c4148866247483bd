package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// SettingsPage is the answer to config.get.
type SettingsPage struct {
	Settings []settings.Value `json:"settings"`
	// Revision is of the last change, and Ignored counts those that are not in force nor ever were.
	Revision uint64 `json:"revision"`
	Ignored  int    `json:"ignored"`
}

// ChangesPage is the answer to config.history, oldest first.
type ChangesPage struct {
	Changes []settings.Change `json:"changes"`
	// LeftOut counts older changes.
	LeftOut int `json:"left_out"`
}

// LetterQuery selects dead letters; the zero value selects the newest of all.
type LetterQuery struct {
	// Stream is commands, events or the name of a stream, and Lane a lane's number.
	Stream string `json:"stream"`
	Lane   *int   `json:"lane"`
	// Since excludes older ones.
	Since time.Time `json:"since"`
	// State is open, retried or discarded.
	State string `json:"state"`
	// Limit is the size of a page, 0 = the default; and Before the next of the page before.
	Limit  int    `json:"limit"`
	Before string `json:"before"`
	// Masked: its sender does not see codes, so neither the lines.
	Masked bool `json:"-"`
}

// Newest returns the newest changes, up to limit, of one setting, "" = of all.
func Newest(all []settings.Change, setting string, limit int) ChangesPage {
	page := ChangesPage{Changes: []settings.Change{}}
	for _, c := range all {
		if setting == "" || c.Setting == setting {
			page.Changes = append(page.Changes, c)
		}
	}
	page.LeftOut = max(0, len(page.Changes)-limit)
	page.Changes = page.Changes[page.LeftOut:]
	return page
}

// MostChanges is the most changes of settings in one answer, and the default: they fit into a message.
const MostChanges = 1000

func (s *Service) readSettings(ctx context.Context, _ access.Principal, q struct {
	Setting string `json:"setting"`
}) (any, error) {
	state, err := s.opts.Settings.Read(ctx)
	if err != nil {
		return nil, err
	}
	page := SettingsPage{Settings: state.Values(), Revision: state.Revision, Ignored: state.Ignored}
	if q.Setting != "" {
		v, err := state.Value(q.Setting)
		if err != nil {
			return nil, Invalid(err)
		}
		page.Settings = []settings.Value{v}
	}
	return page, nil
}

func (s *Service) listSettings(ctx context.Context, _ access.Principal, q struct {
	Setting string `json:"setting"`
	Limit   int    `json:"limit"`
}) (any, error) {
	if q.Limit < 0 || q.Limit > MostChanges {
		return nil, Invalid(fmt.Errorf("limit: must be a whole number from 1 to %d", MostChanges))
	}
	q.Limit = cmp.Or(q.Limit, MostChanges)
	all, err := s.opts.Settings.History(ctx)
	if err != nil {
		return nil, err
	}
	return Newest(all, q.Setting, q.Limit), nil
}

// recordExport records that its sender exports the coupons of a campaign, which it reads from the tables itself, before it
// reads the first one.
func (s *Service) recordExport(ctx context.Context, p access.Principal, q ofCampaign) (any, error) {
	if !wire.ValidCampaignName(q.Campaign) {
		return nil, Invalid(errors.New("campaign: must be the name of a campaign"))
	}
	return q, s.record(ctx, audit.By(p, audit.Export, audit.Coupons, q.Campaign))
}

func (s *Service) readStatus(ctx context.Context, _ access.Principal, _ struct{}) (any, error) {
	return s.opts.Status(ctx)
}

func (s *Service) listLetters(ctx context.Context, p access.Principal, q LetterQuery) (any, error) {
	if q.Masked = !p.Codes; !q.Masked {
		if err := s.record(ctx, audit.By(p, audit.LookUp, "deadletters", "")); err != nil {
			return nil, err
		}
	}
	return s.opts.DeadLetters(ctx, q)
}
