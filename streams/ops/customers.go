package ops

import (
	"encoding/json"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
)

// ShownCustomer is the id of a customer as its reader sees it: in clear with the right to, and if the request names it; else the
// keyed hash that events and tables have, too.
func (o *Ops) ShownCustomer(who access.Principal, id, named string) string {
	switch {
	case id == "" || id == named || who.Customers:
		return id
	case o.MaskCustomer == nil:
		return "masked"
	}
	return o.MaskCustomer(id)
}

// showCustomers masks the customer that the request of a job names.
func (o *Ops) showCustomers(who access.Principal, j *Job) {
	var q map[string]json.RawMessage
	if who.Customers || json.Unmarshal(j.Request, &q) != nil || q["customer_id"] == nil {
		return
	}
	var id string
	_ = json.Unmarshal(q["customer_id"], &id) // of another form: it is left out
	q["customer_id"], _ = json.Marshal(o.ShownCustomer(who, id, ""))
	j.Request, _ = json.Marshal(q)
}

// hideCustomer leaves out of an entry what may be the id of a customer. A reader without the right sees what is left.
func hideCustomer(e *audit.Entry) {
	switch {
	case e.Kind == audit.OptOuts, e.Kind == audit.LookUp && (e.Action == "customer" || e.Action == "coupons"),
		e.Kind == audit.Export && e.Action == audit.Events:
		e.About = ""
	case e.Kind == audit.LookUp && e.Action == "reminders", e.Kind == audit.Jobs && strings.Contains(e.About, `"customer_id"`):
		e.About, _, _ = strings.Cut(e.About, " ") // the campaign, the id of the job
	}
}
