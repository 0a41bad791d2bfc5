// SPDX-License-Identifier: GPL-2.0-only
//
// phased: runs vmstat_update() on each CPU once per interval, at a phase of that CPU.
//
// An interval (/proc/sys/vm/stat_interval) is divided into as many equal parts as the
// node has CPUs. The turn of a CPU is the beginning of one part, selected by the rank of
// the CPU in its node. round_jiffies_relative() places CPUs 3 jiffies apart, but the
// timer wheel rounds a timer a second ahead up to a step of 64 jiffies at HZ 1000, so
// 22 CPUs fire in one jiffy. With this patch, the timer of a turn is armed two or three
// times. Each time it is armed early enough that the rounding cannot make it late, so
// it is exact to a jiffy. It stays deferrable: it does not wake an idle CPU.
//
// The shepherd does not start the work of all dormant CPUs at once. A second timer,
// on the CPU that runs the shepherd, starts the work of each dormant CPU at that CPU's
// next turn. The second timer is not deferrable; otherwise the differentials of a
// dormant CPU that is idle would not be folded.
//
// Apply to: mm/vmstat.c
// Expect: 0 vmstat_work
// Expect: 3 vmstat_turn_next
// Expect: 3 vmstat_turn_pending
// Expect: 3 vmstat_turn_setup
// Expect: 2 vmstat_turn_cancel

@ turn @
declarer name DEFINE_PER_CPU;
symbol vmstat_work;
@@
-static DEFINE_PER_CPU(struct delayed_work, vmstat_work);
+struct vmstat_turn {
+	struct work_struct work;
+	struct timer_list timer;
+	struct timer_list kick;
+	unsigned long at;
+	int cpu;
+};
+
+static DEFINE_PER_CPU(struct vmstat_turn, vmstat_turn);

@ after depends on turn @
declarer name DEFINE_PER_CPU;
symbol vmstat_turn;
@@
 static DEFINE_PER_CPU(struct vmstat_turn, vmstat_turn);
+
+static unsigned long vmstat_turn_after(int cpu, unsigned long jiffy)
+{
+	/* Returns the first jiffy after the given one that is a turn of the CPU. */
+	const struct cpumask *mask = cpumask_of_node(cpu_to_node(cpu));
+	unsigned int rank = bitmap_weight(cpumask_bits(mask), cpu);
+	unsigned int cpus = max(cpumask_weight(mask), rank + 1);
+	unsigned long interval = max(READ_ONCE(sysctl_stat_interval), 1);
+	unsigned long phase = mult_frac(interval, rank, cpus);
+
+	return jiffy + interval - (jiffy - phase) % interval;
+}

@ step depends on after @
@@
 unsigned long vmstat_turn_after(...) { ... }
+
+static void vmstat_turn_arm(struct vmstat_turn *turn, struct timer_list *timer)
+{
+	/*
+	 * The timer wheel is exact for delays below 63 jiffies. A longer delay
+	 * is rounded up by at most 8/63. So the timer is armed an eighth of the
+	 * distance early, which is more than the rounding, and then armed again.
+	 */
+	long left = (long)(turn->at - jiffies);
+
+	mod_timer(timer, left < 63 ? turn->at : turn->at - left / 8);
+}

@ next depends on step @
@@
 void vmstat_turn_arm(...) { ... }
+
+static void vmstat_turn_next(struct vmstat_turn *turn, struct timer_list *timer,
+			     unsigned long jiffy)
+{
+	turn->at = vmstat_turn_after(turn->cpu, jiffy);
+	vmstat_turn_arm(turn, timer);
+}

@ expire depends on next @
@@
 void vmstat_turn_next(...) { ... }
+
+static void vmstat_turn_expire(struct vmstat_turn *turn, struct timer_list *timer)
+{
+	if (time_before(jiffies, turn->at))
+		vmstat_turn_arm(turn, timer);
+	else
+		queue_work_on(turn->cpu, mm_percpu_wq, &turn->work);
+}

@ timer_fn depends on expire @
@@
 void vmstat_turn_expire(...) { ... }
+
+static void vmstat_timer_fn(struct timer_list *timer)
+{
+	struct vmstat_turn *turn = from_timer(turn, timer, timer);
+
+	vmstat_turn_expire(turn, timer);
+}

@ kick_fn depends on timer_fn @
@@
 void vmstat_timer_fn(...) { ... }
+
+static void vmstat_kick_fn(struct timer_list *timer)
+{
+	struct vmstat_turn *turn = from_timer(turn, timer, kick);
+
+	vmstat_turn_expire(turn, timer);
+}

@ pending depends on kick_fn @
typedef bool;
@@
 void vmstat_kick_fn(...) { ... }
+
+static bool vmstat_turn_pending(const struct vmstat_turn *turn)
+{
+	if (timer_pending(&turn->timer) || timer_pending(&turn->kick))
+		return true;
+	return work_pending(&turn->work);
+}

@ setup depends on pending @
typedef bool;
@@
 bool vmstat_turn_pending(...) { ... }
+
+static void vmstat_turn_setup(struct vmstat_turn *turn)
+{
+	timer_setup(&turn->timer, vmstat_timer_fn,
+		    TIMER_DEFERRABLE | TIMER_PINNED);
+	timer_setup(&turn->kick, vmstat_kick_fn, 0);
+}

@ cancel depends on setup @
@@
 void vmstat_turn_setup(...) { ... }
+
+static void vmstat_turn_cancel(struct vmstat_turn *turn)
+{
+	/* Shut the timers down first: the work must not arm the timer again. */
+	timer_shutdown_sync(&turn->kick);
+	timer_shutdown_sync(&turn->timer);
+	cancel_work_sync(&turn->work);
+	vmstat_turn_setup(turn);
+}

// The next turn is more than half an interval away. So the work does not run again at
// once if it was late, or if the phase moves because a CPU goes online or offline.
@ update depends on cancel @
expression interval;
symbol mm_percpu_wq;
@@
 static void vmstat_update(...)
 {
 <...
-queue_delayed_work_on(smp_processor_id(), mm_percpu_wq,
-	this_cpu_ptr(&vmstat_work), round_jiffies_relative(interval));
+struct vmstat_turn *turn = this_cpu_ptr(&vmstat_turn);
+
+vmstat_turn_next(turn, &turn->timer, jiffies + interval / 2);
 ...>
 }

@ quiet depends on update @
@@
-delayed_work_pending(this_cpu_ptr(&vmstat_work))
+vmstat_turn_pending(this_cpu_ptr(&vmstat_turn))

@ shepherd depends on update @
identifier cpu, dw;
@@
 static void vmstat_shepherd(...)
 {
 <...
-struct delayed_work *dw = &per_cpu(vmstat_work, cpu);
+struct vmstat_turn *turn = &per_cpu(vmstat_turn, cpu);
 ...
-if (!delayed_work_pending(dw) && need_update(cpu))
-	queue_delayed_work_on(cpu, mm_percpu_wq, dw, 0);
+if (!vmstat_turn_pending(turn) && need_update(cpu))
+	vmstat_turn_next(turn, &turn->kick, jiffies);
 ...>
 }

@ start depends on update @
identifier cpu;
symbol vmstat_update;
iterator name for_each_possible_cpu;
@@
 static void start_shepherd_timer(void)
 {
 ...
 for_each_possible_cpu(cpu)
-	INIT_DEFERRABLE_WORK(per_cpu_ptr(&vmstat_work, cpu), vmstat_update);
+{
+	struct vmstat_turn *turn = per_cpu_ptr(&vmstat_turn, cpu);
+
+	turn->cpu = cpu;
+	INIT_WORK(&turn->work, vmstat_update);
+	vmstat_turn_setup(turn);
+}
 ...
 }

@ stop depends on update @
expression cpu;
@@
-cancel_delayed_work_sync(&per_cpu(vmstat_work, cpu));
+vmstat_turn_cancel(&per_cpu(vmstat_turn, cpu));
