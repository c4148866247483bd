package access_test

import (
	"fmt"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// rightCell is a change of a key by somebody.
type rightCell struct {
	// By has the role, the right to see codes and the campaigns of the author, and a name that is equal for equal authors.
	By access.Principal
	// Key has the role and the right of the key that is made, or of the one that is replaced. It has no name.
	Key access.New
	// Action is create or rotate.
	Action string
	// May is whether the author may make the change.
	May bool
}

func (c rightCell) String() string {
	return fmt.Sprintf("%s by %s: a key of role %s, codes %t", c.Action, c.By.Name, c.Key.Role, c.Key.Codes)
}

// rights is the table: each role that a key may have, with and without the right to see codes, and an operator limited to
// campaigns, make and replace keys with and without that right. It says by itself what is allowed, so that a change of package
// access is noticed.
func rights() []rightCell {
	var authors []access.Principal
	for _, role := range access.Keyed {
		authors = append(authors, access.Principal{Role: role})
		if role != access.Sender { // no key of a sender sees codes
			authors = append(authors, access.Principal{Role: role, Codes: true})
		}
	}
	authors = append(authors, access.Principal{Role: access.Operator, Codes: true, Campaigns: []string{"summer"}})
	var cells []rightCell
	for _, by := range authors {
		by.Name = fmt.Sprintf("%s-codes=%t-limited=%t", by.Role, by.Codes, by.Campaigns != nil)
		manages := by.Role == access.Operator && by.Campaigns == nil
		for _, key := range []access.New{{Role: access.Support}, {Role: access.Support, Codes: true}, {Role: access.Operator}, {Role: access.Operator, Codes: true}} {
			for _, action := range []string{"create", "rotate"} {
				cells = append(cells, rightCell{By: by, Key: key, Action: action, May: manages && (by.Codes || !key.Codes)})
			}
		}
	}
	return cells
}
