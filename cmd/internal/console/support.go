package console

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

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
	{id: "setReminder", title: "Remind", fields: []string{"customer_id", "kind", "before"}, cli: "scrip remind {campaign} --customer {customer_id} --kind {kind} --before {before}"},
	{id: "cancelReminder", title: "Cancel the reminder", cli: "scrip unremind {campaign} --customer {customer_id} --kind {kind} --before {before}"},
}

func loadCoupon(v *view) any {
	campaign, n := v.r.PathValue("campaign"), v.r.PathValue("n")
	v.Title = "Coupon " + n + " of " + campaign
	d := list[api.OneCoupon](v, "/v1/campaigns/"+escape(campaign)+"/coupons/"+escape(n))
	v.Problem = d.Problem
	return d
}

// lastOrder is the order of the newest redemption on this page, for a roll-back.
func lastOrder(c api.OneCoupon) string {
	for _, e := range c.History.History {
		if e.OrderID != "" {
			return e.OrderID
		}
	}
	return ""
}

// customerData is a customer with reminders by campaign.
type customerData struct {
	Part[api.OneCustomer]
	Reminders []Part[ops.Page[domain.ReminderView]]
}

// shortestCode is the least number of symbols of a text that is tried as a code.
const shortestCode = 8

// mostReminders bounds the campaigns whose reminders a customer's page reads.
const mostReminders = 10

func loadCustomer(v *view) any {
	id := v.r.PathValue("customer")
	v.Title = "Customer " + id
	d := customerData{Part: list[api.OneCustomer](v, "/v1/customers/"+escape(id))}
	v.Problem = d.Problem
	seen := map[string]bool{}
	for _, c := range d.Data.Items {
		if !seen[c.Campaign] && len(seen) < mostReminders {
			seen[c.Campaign] = true
			if p := get[ops.Page[domain.ReminderView]](v, "/v1/campaigns/"+escape(c.Campaign)+"/reminders", "customer_id", id); len(p.Data.Items) > 0 {
				d.Reminders = append(d.Reminders, p)
			}
		}
	}
	return d
}

// orderData is an order by the coupons that were redeemed for it.
type orderData struct {
	Part[ops.Page[ops.Coupon]]
	Order string
}

func loadOrder(v *view) any {
	order := v.r.PathValue("order")
	v.Title = "Order " + order
	d := orderData{list[ops.Page[ops.Coupon]](v, "/v1/coupons", "order_id", order), order}
	v.Problem = d.Problem
	return d
}

// found is what a text was taken for.
type found struct {
	Query string
	Hits  []hit
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
		f.find(v)
	}
	if len(f.Hits) == 1 && len(f.Problems) == 0 {
		http.Redirect(w, r, c.path(f.Hits[0].Path), http.StatusSeeOther)
		return
	}
	v.Data = f
	v.render(http.StatusOK, "search", "layout")
}

// find looks the text up, one request for each kind of thing. A code is tried only if it has the form of one: wrong ones are counted.
func (f *found) find(v *view) {
	q := f.Query
	add := func(kind, name, path string) { f.Hits = append(f.Hits, hit{kind, name, path}) }
	failed := func(p *web.Problem) bool {
		if p != nil && p.Status != http.StatusNotFound && p.Status != http.StatusUnprocessableEntity && p.Status != http.StatusForbidden && p.Status != http.StatusBadRequest {
			f.Problems = append(f.Problems, p)
		}
		return p != nil
	}
	if wire.ValidCampaignName(q) {
		if p := get[domain.CampaignView](v, "/v1/campaigns/"+escape(q)); !failed(p.Problem) {
			add("campaign", q, "/campaigns/"+escape(q))
		}
	}
	if _, err := code.NormalizeImported(q); err == nil && len(code.FoldImported(q)) >= shortestCode {
		if p := search[api.CouponList](v, "/v1/coupons/search", map[string]string{"code": q}); !failed(p.Problem) {
			f.coupons(p.Data.Items, "code")
		}
	}
	if campaign, last, ok := strings.Cut(q, " "); ok && wire.ValidCampaignName(campaign) {
		if p := get[ops.Page[ops.Coupon]](v, "/v1/coupons", "campaign", campaign, "last_four", strings.TrimSpace(last), "limit", "10"); !failed(p.Problem) {
			f.coupons(p.Data.Items, "campaign and last four")
		}
	}
	if p := get[api.OneCustomer](v, "/v1/customers/"+escape(q), "limit", "1"); !failed(p.Problem) && len(p.Data.Items)+len(p.Data.History.History) > 0 {
		add("customer", q, "/customers/"+escape(q))
	}
	if p := get[ops.Page[ops.Coupon]](v, "/v1/coupons", "order_id", q, "limit", "1"); !failed(p.Problem) && len(p.Data.Items) > 0 {
		add("order", q, "/orders/"+escape(q))
	}
}

func (f *found) coupons(all []ops.Coupon, kind string) {
	for _, c := range all {
		n := strconv.FormatUint(uint64(c.N), 10)
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

// exportCustomer sends all that /v1 has about a customer: pages of coupons and history, as JSON lines.
func (c *Console) exportCustomer(w http.ResponseWriter, r *http.Request) {
	v := c.view(w, r)
	if v == nil {
		return
	}
	id, after := r.PathValue("customer"), ""
	for first := true; first || after != ""; first = false {
		path := "/v1/customers/" + escape(id) + "?limit=1000"
		if after != "" {
			path += "&after=" + queryEscape(after)
		}
		a := c.call(request(r, v.Who, http.MethodGet, path, nil))
		if problem := a.problem(); problem != nil {
			if first {
				v.fail(problem)
			}
			return // the file ends without a last page, whose next is absent
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
}
