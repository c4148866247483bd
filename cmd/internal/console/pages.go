package console

import "slices"

// pages is the table of pages, in the order of the navigation.
var pages = slices.Concat(overviewPages, campaignPages, supportPages, logPages[2:], deliverPages, operatePages, logPages[:2], managePages)

// acts is the table of acts.
var acts = slices.Concat(campaignActs, supportActs, logActs, deliverActs, operateActs, manageActs)
