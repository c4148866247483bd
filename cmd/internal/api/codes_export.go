package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/codescsv"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// exportPage is how many coupons are read at once: no transaction stays open while a client reads slowly.
const exportPage = 2000

func (a *API) exportRoute() {
	readStream(a, Route{Method: http.MethodGet, Path: "/v1/campaigns/{campaign}/codes", ID: "exportCodes", Tag: "codes", Summary: "Export the claimed coupons as CSV",
		About: "In the order in which they were claimed, from the read tables: those of the last seconds may be missing. Codes that are not claimed " +
			"are not exported. Without the right to see codes, or customers, these are keyed hashes, equal for equal ones. Exports are recorded in the audit stream. " +
			"A transfer that ends early is cut off, not completed. Texts that a spreadsheet would run as a formula, and those that start with a single quote, have a single quote before them.",
		Operation: access.OpExportCodes},
		huma.Operation{
			Responses: answer("200", "CSV with a header row: campaign, n, code, customer_id, status, claimed_at, expires_at, redeemed_count, redeemed_at.",
				map[string]*huma.MediaType{"text/csv": {Schema: text("CSV in UTF-8.")}}),
		}, a.exportCoupons)
}

func (a *API) exportCoupons(w http.ResponseWriter, req *http.Request, in *OneCampaign) {
	p, campaign := principal(req.Context()), in.Campaign
	if err := checkCampaign(campaign); err != nil {
		a.refuse(w, err)
		return
	}
	ctx, end := a.session(w, req, a.slots.exports)
	if end == nil {
		return
	}
	defer end()
	if err := a.exists(ctx, campaign); err != nil {
		a.refuse(w, err)
		return
	}
	if err := a.record(ctx, audit.Export, audit.Coupons, campaign); err != nil {
		a.refuse(w, err)
		return
	}
	form := codescsv.Form{}
	if !p.Clear() {
		form.Mask = replay.NewMask(a.MaskKey, !p.Codes, !p.Customers)
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="`+campaign+`.csv"`)
	count, err := a.export(ctx, w, campaign, form)
	if err != nil {
		a.Logger.Warn("an export was cut off", "request_id", web.EnsureRequestID(w.Header()), "campaign", campaign, "coupons", count, "err", err)
		panic(http.ErrAbortHandler) // an ordinary end would make an incomplete file look complete
	}
}

// exists returns the problem of a campaign that the read tables do not have.
func (a *API) exists(ctx context.Context, campaign string) error {
	if a.DB == nil {
		return web.New(web.Unavailable, ops.ErrNoTables.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	known, err := readmodel.HasCampaign(ctx, a.DB, campaign)
	if err != nil {
		return unavailable("the read tables cannot be read", err)
	}
	if !known {
		p := web.New(web.Code(wire.CampaignNotFound), "there is no campaign "+campaign+" in the read tables")
		p.Campaign = campaign
		return p
	}
	return nil
}

// export writes the coupons of a campaign, page by page.
func (a *API) export(ctx context.Context, w http.ResponseWriter, campaign string, form codescsv.Form) (count int, err error) {
	stream, rows := web.NewStream(w), replay.NewCSVWriter(w)
	_ = rows.Write(codescsv.Columns...) // Flush below returns a failure
	q := ops.ListCoupons{Campaign: campaign, Paging: ops.Paging{Limit: exportPage}}
	for more := true; more; more = q.After != "" {
		page, err := readmodel.NewCoupons(a.DB).List(ctx, q, nil)
		if err != nil {
			return count, err
		}
		stream.Writing(streamWait)
		for i := range page.Items {
			c := &page.Items[i]
			_ = rows.Write(form.Fields(&codescsv.Row{Campaign: c.Campaign, N: c.N, Code: c.Code, CustomerID: c.CustomerID, Status: c.Status,
				ClaimedAt: c.ClaimedAt, ExpiresAt: c.ExpiresAt, RedeemedCount: c.RedeemedCount, RedeemedAt: c.RedeemedAt})...)
		}
		if err := rows.Flush(); err != nil {
			return count, err
		}
		count, q.After = count+len(page.Items), page.Next
	}
	return count, nil
}
