// SPDX-License-Identifier: GPL-2.0-only
//
// bounded: a hold of the zone lock moves at most a batch, on all four paths.
//
// A refill (rmqueue_bulk) may move up to 63 << 5 = 2016 pages in one hold, and so
// may a spill and a drain (both free_pcppages_bulk; the decay calls it as well).
// Every other CPU that wants the zone waits that long. Here the lock is released
// and taken again between two pieces of at most zone->pageset_batch pages. A single
// block that is larger than a batch has a hold of its own.
//
// The pcp lock stays held in between, so the page lists cannot change.
//
// Apply to: mm/page_alloc.c
// Expect: 3 zone_hold_next

// The new function is put behind free_pages_prepare() and not in front of the function
// that follows, because the comment in front of that one belongs to it.
@ helper @
identifier free_pages_prepare =~ "^free_pages_prepare$";
type T;
typedef bool;
@@
T free_pages_prepare(...) { ... }
+
+static bool zone_hold_next(struct zone *zone, unsigned long *flags,
+			   int *held, int nr_pages)
+{
+	/*
+	 * Before each block of a bulk operation under zone->lock: *held pages
+	 * were moved in this hold, nr_pages more come. Says whether the lock was
+	 * released and taken again, and the free lists may have changed with it.
+	 */
+	bool full = *held && *held + nr_pages > READ_ONCE(zone->pageset_batch);
+
+	if (full) {
+		spin_unlock_irqrestore(&zone->lock, *flags);
+		spin_lock_irqsave(&zone->lock, *flags);
+		*held = 0;
+	}
+	*held += nr_pages;
+	return full;
+}

// Spill, decay and drain.
@ bulk_free depends on helper @
identifier zone, flags, page, list;
symbol nr_pages, pcp_list;
@@
 static void free_pcppages_bulk(struct zone *zone, ...)
 {
 ...
 unsigned long flags;
+int held = 0;
 <+...
+zone_hold_next(zone, &flags, &held, nr_pages);
 page = list_last_entry(list, struct page, pcp_list);
 ...+>
 }

// Refill. What rmqm remembers of the free lists is true only while the lock is held.
@ bulk_alloc depends on bulk_free @
identifier zone, order, rmqm, flags, page, rmqueue =~ "^__rmqueue$";
expression list ES;
@@
 static int rmqueue_bulk(struct zone *zone, unsigned int order, ...)
 {
 enum rmqueue_mode rmqm = RMQUEUE_NORMAL;
 unsigned long flags;
+int held = 0;
 ...
 for (...; ...; ...) {
-struct page *page = rmqueue(ES);
+struct page *page;
+
+if (zone_hold_next(zone, &flags, &held, 1 << order))
+	rmqm = RMQUEUE_NORMAL;
+page = rmqueue(ES);
 ...
 }
 ...
 }
