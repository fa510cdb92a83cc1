/* Options that several parts of a training program read; others are next to the code that reads them. */

#include "options.h"

#include "train/loop/option_rows.h"

#include "lather/checkpoint.h"

/* clang-format off */
#define OF loader_options
static const lt_option loader_rows[] = {
{"Data", INT("limit-train-batches", limit_train_batches, 0, MANY), .value = "0", .common = true, .help = "maximum batches per epoch; 0: all"},
{"Data", INT("limit-eval-batches", limit_eval_batches, 0, MANY), .value = "0", .help = "maximum batches per evaluation, spread evenly over the data; 0: all"},
{"Data", INT("overfit-batches", overfit_batches, 0, MANY), .value = "0", .help = "train and evaluate on the first N batches only, unshuffled, without augmentation; 0: off"},
};
OPTION_TABLE(lt_loader_option_table, loader_options, loader_rows)

#undef OF
#define OF training_options
static const lt_option training_rows[] = {
{"Training", INT("grad-accum", grad_accum, 1, 1000000), .value = "1", .also = "gradient-accumulation-steps", .common = true, .help = "micro-batches per update"},
{"Training", NUM("epochs", epochs, 0, 1e6), .value = "0", .also = "ep", .common = true, .help = "epochs to train, and length of the schedule; 0: as long as --max-steps, otherwise 90"},
{"Training", INT("max-steps", max_steps, 0, MANY), .value = "0", .also = "max-iters", .common = true, .help = "stop after this many updates; 0: at the end of the epochs"},
{"Training", INT("seed", seed, 0, 9e15), .value = "0", .common = true, .help = "seed of initial values, order and augmentation"},
{"Training", NUM("clip-grad", clip_grad, 0, 1e30), .value = "0", .common = true, .also = "max-grad-norm", .help = "maximum global norm of the gradient; 0: no limit"},
{"Training", NUM("ema-decay", ema_decay, 0, 1), .below = true, .value = "0", .common = true, .also = "model-ema-decay", .in_state = "*", .help = "decay of an exponential moving average of the weights, which is then evaluated; 0: off"},
{"Training", PICK("state-dtype", state_dtype, "f32|bf16|int8"), .help = "storage of the optimizer's moments between updates; int8: in blocks of 128 with a scale each; for factors and inverse roots see --factor-dtype"},
{"Training", PICK("state-memory", state_memory, "any|adam"), .help = "adam: reduce the optimizer's state to the size of Adam's two f32 moments, by packed triangles, then smaller dtypes of factors and moments, then smaller blocks; logs the choice"},
{"Training", PICK("amp", amp, "off|bf16|f16|tf32"), .common = true, .help = "dtype of activations; off: f32; tf32: off with --tf32 on; f16 (cuda, ref): with a loss scale that is halved after an overflow and doubled after 2000 steps without"},
{"Training", PICK("recompute", recompute, "off|cheap|auto"), .value = "cheap", .help = "cheap: recompute outputs of batch norm and relu in backward instead of keeping them; auto: off if twice the estimated memory of a step without it is free on every rank's device (cpu: in the machine), otherwise cheap; the choice is logged and stored in config.yaml, so that --resume repeats it"},
{"Training", PICK("on-nan", on_nan, "abort|skip"), .help = "action when a gradient is not finite (--amp f16: at a loss scale below 2^-14)"},
{"Training", BOOL("gradient-noise", gradient_noise), .help = "record the gradient noise scale, in samples, as noise_scale in metrics.jsonl: about the batch size above which more samples save few steps; needs several ranks or --grad-accum 2"},
{"Training", BOOL("deterministic", deterministic), .help = "bitwise equal results on the same build, CPU type and thread count"},
{"Training", BOOL("reproducible", reproducible), .help = "bitwise equal results on every processor, with any number of threads and ranks; slower"},
};
OPTION_TABLE(lt_training_option_table, training_options, training_rows)

lt_option_table lt_reproducible_option_table(training_options *o)
{
    return (lt_option_table){&training_rows[sizeof training_rows / sizeof *training_rows - 1], 1, o};
}

#undef OF
#define OF lt_averaging_config
static const lt_option averaging_rows[] = {
{"Optimizer", PICK("iterate-averaging", kind, "off|schedule-free|primal|tail|ema-nesterov"), .common = true, .in_state = "*", .help = "take gradients at one sequence of weights, evaluate and save an average of iterates; schedule-free: of all, with --sched constant; primal: an exponential one; with either, momentum and beta1 are best 0; tail: mean of the last ones, training as without; ema-nesterov: evaluate the iterates, gradients ahead of them"},
{"Optimizer", NUM("train-interp-coeff", train_interp_coeff, 1e-6, 1), .value = "0.8", .through = "opt-kwargs", .applies = "--iterate-averaging=schedule-free|primal", .help = "fraction of the average in the weights at which gradients are taken; the rest is the last iterate"},
{"Optimizer", NUM("eval-interp-coeff", eval_interp_coeff, 0, 1), .below = true, .value = "0.9", .through = "opt-kwargs", .in_state = "*", .applies = "--iterate-averaging=primal", .help = "fraction of the previous average in the new one"},
{"Optimizer", NUM("eval-coeff-lr-power", eval_coeff_lr_power, 0, 100), .value = "2", .through = "opt-kwargs", .in_state = "*", .applies = "--iterate-averaging=schedule-free", .help = "weight of an iterate, as this power of its learning rate, so that warm-up counts less"},
{"Optimizer", INT("tail-start", tail_start, 1, MANY), .value = "1", .through = "opt-kwargs", .in_state = "*", .applies = "--iterate-averaging=tail", .help = "first step whose weights are averaged"},
{"Optimizer", NUM("lookahead", lookahead, 0, 1000), .value = "0.5", .through = "opt-kwargs", .applies = "--iterate-averaging=ema-nesterov", .help = "distance of the weights at which gradients are taken, in moving averages of changes, at the highest learning rate; scaled with it"},
{"Optimizer", NUM("lookahead-decay", lookahead_decay, 0, 1), .below = true, .value = "0.99", .through = "opt-kwargs", .in_state = "*", .applies = "--iterate-averaging=ema-nesterov", .help = "decay rate of the moving average of changes"},
{"Optimizer", INT("lookahead-start", lookahead_start, 1, MANY), .value = "1", .through = "opt-kwargs", .applies = "--iterate-averaging=ema-nesterov", .help = "first step with a lookahead"},
{"Optimizer", INT("lookahead-end", lookahead_end, 0, MANY), .value = "0", .through = "opt-kwargs", .applies = "--iterate-averaging=ema-nesterov", .help = "first step after those with a lookahead, above lookahead-start; 0: none"},
{"Optimizer", BOOL("decay-of-y", decay_of_y), .through = "opt-kwargs", .applies = "--iterate-averaging=schedule-free|primal", .help = "adamw, sgd without momentum: apply weight decay to the weights at which gradients are taken, as schedulefree's optimizers do, instead of the last iterate"},
};
OPTION_TABLE(lt_averaging_option_table, lt_averaging_config, averaging_rows)

#undef OF
#define OF lt_cautious_config
static const lt_option cautious_rows[] = {
{"Optimizer", BOOL("cautious-mask", mask), .through = "opt-kwargs", .help = "leave out elements of an update whose sign is not the gradient's, and scale the others up by their share (arXiv 2411.16085)"},
{"Optimizer", BOOL("cautious-weight-decay", decay), .through = "opt-kwargs", .help = "decoupled weight decay, in place of the optimizer's own, of elements that the update does not move away from zero (arXiv 2510.12402)"},
{"Optimizer", BOOL("hyperball", hyperball), .through = "opt-kwargs", .in_state = "*", .help = "weights of two or more dimensions keep the norm that they start with, without weight decay; --lr is the length of an update relative to it (arXiv 2606.16899)"},
};
OPTION_TABLE(lt_cautious_option_table, lt_cautious_config, cautious_rows)

#undef OF
#define OF evaluation_options
static const lt_option evaluation_rows[] = {
{"Evaluation", BOOL("eval", eval), .common = true, .applies = "--weights --watch", .help = "evaluate --weights only; same as the command evaluate"},
{"Evaluation", TEXT("watch", watch), .meta = "RUN", .once = true, .help = "evaluate each checkpoint of a run that another process trains, with the run's settings, until it ends"},
{"Evaluation", NUM("watch-wait", watch_wait, 0, 1e9), .value = "0", .once = true, .applies = "--watch", .help = "seconds to wait for the run of --watch to begin"},
{"Evaluation", INT("eval-every", eval_every, -1, MANY), .value = "1", .common = true, .help = "epochs between evaluations; 0: only at the end; -1: never, for use with --watch"},
{"Evaluation", TEXT("early-stop", early_stop), .meta = "METRIC:PATIENCE[:MIN_DELTA]", .help = "end the run after PATIENCE evaluations (of train_*: epochs) in which METRIC, as in metrics.jsonl, did not improve by more than MIN_DELTA: val_loss:5; off: never"},
{"Evaluation", INT("update-bn", update_bn, -1, MANY), .value = "-1", .applies = "--iterate-averaging", .help = "training batches per rank from which batch norm's running statistics are recomputed for the averaged weights, before an evaluation or checkpoint; 0: keep those of training; -1: 50"},
};
OPTION_TABLE(lt_evaluation_option_table, evaluation_options, evaluation_rows)

#undef OF
#define OF output_options
static const lt_option output_rows[] = {
{"Output", TEXT("output", output), .alias = 'o', .meta = "DIR", .common = true, .also = "output-dir", .help = "run folder: config, metrics, checkpoints, and at the end model.safetensors (averaged with --ema-decay)"},
{"Output", TEXT("resume", resume), .meta = "auto|PATH", .once = true, .common = true, .applies = "--output", .help = "resume from a checkpoint, whose weights replace --weights; auto: the latest in --output, if there is one"},
{"Output", PICK("data-changed", data_changed, "error|continue"), .once = true, .applies = "--resume", .help = "after an interruption within an epoch whose data files have changed: fail, or restart that epoch with the new data"},
{"Output", BOOL("overwrite", overwrite), .once = true, .common = true, .help = "start a new run in a folder that holds one, whose files are renamed to old-1/, old-2/ and so on; without this and --resume such a folder is rejected"},
{"Output", INT("checkpoint-every", checkpoint_every, 0, MANY), .value = "0", .applies = "--output", .help = "updates between checkpoints, in addition to those at the end of epochs; 0: none"},
{"Output", INT("keep", keep, 0, MANY), .value = "2", .also = "checkpoint-hist", .help = "newest checkpoints of this run to keep, in addition to the best; 0: all"},
{"Output", INT("hash-every", hash_every, 0, MANY), .value = "0", .applies = "--reproducible", .help = "updates between hashes of weights and optimizer state in metrics.jsonl, in addition to those at the start and with each checkpoint, which lather-verify compares; 0: none"},
{"Output", INT("save-top", save_top, 1, LT_CHECKPOINT_TOP), .value = "1", .meta = "K", .help = "best checkpoints to keep, by the metric of the link checkpoints/best"},
{"Output", PICK("progress", progress, "auto|bar|lines|off"), .common = true, .help = "auto: a bar on a terminal, otherwise lines; LATHER_LOG=warn hides the library's notes"},
{"Output", INT("log-every", log_every, 1, MANY), .value = "50", .also = "log-interval", .help = "updates between lines"},
{"Output", BOOL("verbose", verbose), .help = "show the tables of parameters' rules and of Shampoo's blocks, which are always written to OUTPUT/blocks.txt"},
{"Output", BOOL("tensorboard", tensorboard), .value = "true", .help = "write TensorBoard events"},
{"Output", INT("optim-stats", optim_stats, 0, MANY), .value = "0", .meta = "N", .applies = "--output", .help = "every N updates, measure what the optimizer does to each parameter: the rule that it gets, norms, cosines, spectra of factors; in OUTPUT/optim_stats.bin and metrics.jsonl; needs the memory of two more copies of the weights; off by default"},
{"Output", LIST("optim-stats-params", optim_stats_params), .meta = "REGEX", .applies = "--optim-stats", .help = "measure only parameters whose name matches a POSIX extended regular expression"},
{"Output", TEXT("profile", profile), .meta = "FILE", .once = true, .help = "write a trace for Perfetto, and print a table of times"},
};
OPTION_TABLE(lt_output_option_table, output_options, output_rows)

#undef OF
#define OF machine_options
static const lt_option machine_rows[] = {
{"Machine", TEXT("device", device), .value = "cpu", .common = true, .help = "cpu, ref (plain loops), cuda[:N]"},
{"Machine", INT("threads", threads, 0, 4096), .alias = 't', .value = "0", .common = true, .help = "compute threads; 0: as many as affinity and cgroup allow"},
{"Machine", PICK("tf32", tf32, "off|on"), .help = "cuda: on: round the inputs of f32 products to 10 fraction bits, for speed"},
{"Machine", PICK("fused", fused, "auto|on|off"), .help = "cuda, cpu: fuse batch norm's sums into convolution kernels: where that is faster, wherever possible, nowhere"},
{"Machine", BOOL("graph", graph), .value = "true", .help = "cuda: capture the work of an update as a graph and replay it"},
{"Machine", PICK("run-ahead", run_ahead, "auto|off|on"), .help = "queue an update before the results of the previous one are read; auto: on devices with a queue, cuda"},
};
OPTION_TABLE(lt_machine_option_table, machine_options, machine_rows)
/* clang-format on */
