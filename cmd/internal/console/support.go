package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

var supportPages = []page{
	{path: "/search", name: "search", title: "Search", operation: access.OpShowCoupon, load: func(*view) any { return found{} }},
	{path: "/coupons/{campaign}/{n}", name: "coupon", operation: access.OpShowCoupon, load: loadCoupon},
	{path: "/customers/{customer}", name: "customer", operation: access.OpShowCustomer, load: loadCustomer},
	{path: "/orders/{order}", name: "order", operation: access.OpListCoupons, load: loadOrder},
}

// namedFlags are the flags that name a coupon: one without its code, which people may not see.
const namedFlags = "--campaign {campaign} --n {n}"

var supportActs = []act{
	{id: "voidCoupon", title: "Void", fields: []string{"campaign", "n", "reason"}, about: "It cannot be redeemed from now on, and this cannot be undone.", cli: "scrip void " + namedFlags + " [--reason {reason}]"},
	{id: "extendCoupon", title: "Extend", fields: []string{"campaign", "n", "expires_at"}, cli: "scrip extend " + namedFlags + " --expires {expires_at}"},
	{id: "redeem", title: "Redeem", fields: []string{"campaign", "n", "order_id", "customer_id"}, about: "For an order, as the shop does it.", cli: "scrip redeem " + namedFlags + " --order {order_id} [--customer {customer_id}]"},
	{id: "rollback", title: "Roll back", fields: []string{"campaign", "n", "order_id"}, about: "Undoes the redemption of the order: the coupon can be redeemed again.", cli: "scrip rollback " + namedFlags + " --order {order_id}"},
	{id: "setReminder", title: "Remind", fields: []string{"customer_id", "kind", "before", "zone"}, cli: "scrip remind {campaign} --customer {customer_id} --kind {kind} --before {before} [--zone {zone}]"},
	{id: "cancelReminder", title: "Cancel the reminder", cli: "scrip unremind {campaign} --customer {customer_id} --kind {kind} --before {before}"},
	{id: "addOptOut", title: "No reminders", fields: []string{"reason"}, about: "Of any campaign, from now on. What is being delivered is not recalled.", cli: "scrip optout add {customer_id} [--reason {reason}]"},
	{id: "removeOptOut", title: "Reminders again", cli: "scrip optout remove {customer_id}"},
}

// couponData is a coupon, and the batch with which it was allotted, for those who see batches.
type couponData struct {
	Part[api.OneCoupon]
	Batch string
}

func loadCoupon(v *view) any {
	campaign, n := v.r.PathValue("campaign"), v.r.PathValue("n")
	v.Title = "Coupon " + n + " of " + campaign
	d := couponData{Part: list[api.OneCoupon](v, "/v1/campaigns/"+escape(campaign)+"/coupons/"+escape(n), "history", "1")}
	v.Problem = d.Problem
	if d.Problem == nil && d.Data.CustomerID == "" && v.May("listAllotments", campaign) {
		for _, b := range get[ops.Page[domain.AllotmentView]](v, "/v1/campaigns/"+escape(campaign)+"/allotments", "limit", "1000").Data.Items {
			if b.FromN <= d.Data.N && d.Data.N <= b.ThroughN {
				d.Batch = b.Batch
			}
		}
	}
	return d
}

// lastOrder is the order of the newest redemption on this page that was not rolled back, "" = there is none.
func lastOrder(c api.OneCoupon) string {
	undone := map[string]bool{}
	for _, e := range c.History.History {
		if e.What == "redeemed" && !undone[e.OrderID] {
			return e.OrderID
		}
		undone[e.OrderID] = e.What == "rolled_back"
	}
	return ""
}

// customerData is a customer with reminders by campaign.
type customerData struct {
	Part[api.OneCustomer]
	OptOut    Part[ops.OptOutShown]
	Reminders []Part[ops.Page[domain.ReminderView]]
}

// mostReads bounds the requests that a page makes for the rows of a list: the reminders of a customer by campaign, the coupons of
// an order.
const mostReads = 10

func loadCustomer(v *view) any {
	id := v.r.PathValue("customer")
	v.Title = "Customer " + id
	d := customerData{Part: list[api.OneCustomer](v, "/v1/customers/"+escape(id), "history", "1")}
	v.Problem = d.Problem
	if v.May("getOptOut", "") {
		d.OptOut = get[ops.OptOutShown](v, "/v1/opt-outs/"+escape(id))
	}
	var campaigns []string
	for _, c := range d.Data.Items {
		campaigns = append(campaigns, c.Campaign)
	}
	for _, e := range d.Data.History.History { // a reminder of kind opens has no coupon
		campaigns = append(campaigns, e.Campaign)
	}
	slices.Sort(campaigns)
	for _, c := range first(slices.Compact(campaigns)) {
		if p := get[ops.Page[domain.ReminderView]](v, "/v1/campaigns/"+escape(c)+"/reminders", "customer_id", id, "limit", perPage); p.Problem != nil || len(p.Data.Items) > 0 {
			d.Reminders = append(d.Reminders, p)
		}
	}
	return d
}

// first are the rows for which a page makes requests.
func first[T any](all []T) []T { return all[:min(len(all), mostReads)] }

// orderData is an order by the coupons that were redeemed for it.
type orderData struct {
	Part[ops.Page[ops.Coupon]]
	Order string
	// Status is that of the redemption for the order, by row: as its lane has it. Rows after the first ones have none.
	Status [50]string
}

func loadOrder(v *view) any {
	order := v.r.PathValue("order")
	v.Title = "Order " + order
	d := orderData{Part: list[ops.Page[ops.Coupon]](v, "/v1/coupons", "order_id", order), Order: order}
	v.Problem = d.Problem
	for i, c := range first(d.Data.Items) {
		d.Status[i] = get[api.OneCoupon](v, "/v1/campaigns/"+escape(c.Campaign)+"/coupons/"+fmt.Sprint(c.N), "order_id", order).Data.OrderStatus
	}
	return d
}

// found is what a text was taken for.
type found struct {
	Query string
	Hits  []hit
	// Command are the events of the command that has the text as its id.
	Command []ops.CommandEvent
	// Further is where the search for a command goes on, "" = all was searched, or none was needed; Since is how far it came.
	Further string
	Since   time.Time
	// Problems are those of kinds that could not be looked up.
	Problems []*web.Problem
}

// hit is a thing that the text names.
type hit struct{ Kind, Name, Path string }

func init() {
	moreRoutes = append(moreRoutes, route{"POST /search", (*Console).search}, route{"GET /customers/{customer}/export", (*Console).exportCustomer})
}

// search looks a text up as everything that it may be. The text is in the body: codes do not belong into URLs.
func (c *Console) search(w http.ResponseWriter, r *http.Request) {
	v := c.view(w, r)
	if v == nil || !parse(w, r) {
		return
	}
	v.Page, v.Title = pageNamed("search"), "Search"
	if problem := v.allowed(); problem != nil {
		v.fail(problem)
		return
	}
	f := found{Query: strings.TrimSpace(r.PostFormValue("q"))}
	if f.Query != "" {
		if after := r.PostFormValue("after"); after != "" {
			f.command(v, after)
		} else {
			f.find(v)
		}
	}
	if len(f.Hits) == 1 && len(f.Problems) == 0 && f.Command == nil {
		http.Redirect(w, r, c.path(f.Hits[0].Path), http.StatusSeeOther)
		return
	}
	v.Data = f
	v.render(http.StatusOK, "search", "layout")
}

// find looks the text up, one request for each kind of thing. Wrong codes are counted: a text is tried as a code only if it has the
// form of one, or follows the name of a campaign.
func (f *found) find(v *view) {
	q := f.Query
	first, rest, _ := strings.Cut(q, " ")
	rest = strings.TrimSpace(rest)
	if wire.ValidCampaignName(first) && !f.failed(get[domain.CampaignView](v, "/v1/campaigns/"+escape(first)).Problem) {
		path := "/campaigns/" + escape(first)
		last := strings.TrimLeft(code.FoldImported(rest), "*")
		if rest == "" {
			f.Hits = append(f.Hits, hit{"campaign", first, path})
		}
		if n, err := strconv.ParseUint(rest, 10, 32); err == nil {
			if p := get[api.OneCoupon](v, "/v1"+path+"/coupons/"+fmt.Sprint(n)); !f.failed(p.Problem) {
				f.coupons("campaign and number", p.Data.Coupon)
			}
		}
		if len(last) == 4 {
			if p := get[ops.Page[ops.Coupon]](v, "/v1/coupons", "campaign", first, "last_four", last, "limit", "10"); !f.failed(p.Problem) {
				f.coupons("campaign and last four", p.Data.Items...)
				if p.Data.Next != "" { // of a big campaign a page has some of its coupons
					f.Hits = append(f.Hits, hit{"coupons by campaign and last four", "all of " + first + " that end with " + last, path + "/coupons?last_four=" + queryEscape(last)})
				}
			}
		} else if _, err := code.NormalizeImported(last); err == nil {
			f.code(v, "campaign and code", map[string]string{"campaign": first, "code": rest})
		}
	}
	if len(f.Hits) == 0 && code.Formed(q) {
		f.code(v, "code", map[string]string{"code": q})
	}
	if strings.Trim(q, ".") != "" { // else it is no part of a path
		if p := get[api.OneCustomer](v, "/v1/customers/"+escape(q), "history", "1", "limit", "1"); !f.failed(p.Problem) && len(p.Data.Items)+len(p.Data.History.History) > 0 {
			f.Hits = append(f.Hits, hit{"customer", q, "/customers/" + escape(q)})
		}
		if p := get[ops.Page[ops.Coupon]](v, "/v1/coupons", "order_id", q, "limit", "1"); !f.failed(p.Problem) && len(p.Data.Items) > 0 {
			f.Hits = append(f.Hits, hit{"order", q, "/orders/" + escape(q)})
		}
	}
	if len(f.Hits) == 0 { // commands have no index: the log is read, which is not worth it for what is found
		f.command(v, "")
	}
}

// command searches the log for a command, on from the place where an earlier search ended.
func (f *found) command(v *view, after string) {
	q := f.Query
	if !v.May("getCommand", "") || len(q) > wire.MaxCommandID || strings.Trim(q, ".") == "" || strings.Contains(q, " ") {
		return
	}
	p := get[ops.FoundCommand](v, "/v1/commands/"+escape(q), "after", after)
	if f.failed(p.Problem) {
		return
	}
	if f.Further = p.Data.Next; len(p.Data.Events) > 0 {
		f.Command = p.Data.Events
		f.Hits = append(f.Hits, hit{"command", q, ""})
	}
	for _, l := range p.Data.Searched { // as far as all lanes were searched
		if !l.All && l.Since.After(f.Since) {
			f.Since = l.Since
		}
	}
}

// failed reports whether a kind was not found. What may be another kind of thing is no problem.
func (f *found) failed(p *web.Problem) bool {
	if p != nil && (p.Status == http.StatusTooManyRequests || p.Status >= 500) {
		f.Problems = append(f.Problems, p)
	}
	return p != nil
}

func (f *found) code(v *view, kind string, name map[string]string) {
	if p := search[api.CouponList](v, "/v1/coupons/search", name); !f.failed(p.Problem) {
		f.coupons(kind, p.Data.Items...)
	}
}

func (f *found) coupons(kind string, all ...ops.Coupon) {
	for _, c := range all {
		n := fmt.Sprint(c.N)
		f.Hits = append(f.Hits, hit{"coupon by " + kind, c.Campaign + " " + n + " " + c.Code, "/coupons/" + escape(c.Campaign) + "/" + n})
	}
}

// pageNamed is the row of a page.
func pageNamed(name string) *page {
	for i := range pages {
		if pages[i].name == name {
			return &pages[i]
		}
	}
	return nil
}

// exportCustomer sends all that /v1 has about a customer: pages of coupons and history, and the opt-out, as JSON lines.
func (c *Console) exportCustomer(w http.ResponseWriter, r *http.Request) {
	v := c.view(w, r)
	if v == nil {
		return
	}
	id, after := r.PathValue("customer"), ""
	for first := true; first || after != ""; first = false {
		path := "/v1/customers/" + escape(id) + "?history=1&limit=1000"
		if after != "" {
			path += "&after=" + queryEscape(after)
		}
		a := c.call(request(r, v.Who, http.MethodGet, path, nil))
		if problem := a.problem(); problem != nil {
			if first {
				v.fail(problem)
			}
			_, _ = w.Write(a.body.Bytes()) // the last line is why the file is not whole
			return
		}
		if first {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Content-Disposition", `attachment; filename="customer.ndjson"`)
		}
		var page struct{ Next string }
		_ = json.Unmarshal(a.body.Bytes(), &page) // it was made here
		after = page.Next
		if _, err := w.Write(a.body.Bytes()); err != nil {
			return
		}
	}
	if v.May("getOptOut", "") {
		_, _ = w.Write(c.call(request(r, v.Who, http.MethodGet, "/v1/opt-outs/"+escape(id), nil)).body.Bytes()) // or why it is not known
	}
}
