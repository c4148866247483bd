package console

import "slices"

// pages is the table of pages, in the order of the navigation.
var pages = slices.Concat(overviewPages, campaignPages, supportPages, deliverPages, operatePages, managePages)

// acts is the table of acts.
var acts = slices.Concat(campaignActs, supportActs, deliverActs, operateActs, manageActs)
