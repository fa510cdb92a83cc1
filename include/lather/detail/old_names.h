/** Names of version 0.1, kept for one release. LATHER_NO_OLD_NAMES, defined before the first header, hides them. */
#ifndef LATHER_DETAIL_OLD_NAMES_H
#define LATHER_DETAIL_OLD_NAMES_H

/* Not a stable interface: may change in any release. */

#ifndef LATHER_NO_OLD_NAMES

#define lt_param_place                   lt_param_shard_spec
#define lt_param_set_place               lt_param_set_shard_spec
#define lt_parallel_place                lt_parallel_shard_spec
#define lt_parallel_place_features       lt_parallel_shard_spec_features
#define lt_division                      lt_parallel_style
#define LT_DIVIDE_OUTPUTS                LT_COLUMN_PARALLEL
#define LT_DIVIDE_INPUTS                 LT_ROW_PARALLEL
#define lt_parallel_divides_rows         lt_parallel_shards_rows
#define lt_parallel_own_rows             lt_parallel_local_rows
#define lt_parallel_own_samples          lt_parallel_local_samples
#define lt_parallel_take_samples         lt_parallel_slice_samples
#define lt_parallel_take_rows            lt_parallel_slice_rows
#define lt_parallel_put_rows             lt_parallel_unslice_rows
#define lt_answer                        lt_response
#define lt_answer_free                   lt_response_free
#define lt_reply                         lt_response_buffer
#define lt_reply_data                    lt_response_allocate
#define lt_handle                        lt_launch_handle
#define lt_tape_ordinal                  lt_tape_op_counter
#define lt_tape_set_ordinal              lt_tape_set_op_counter
#define lt_tape_on_param_final           lt_tape_on_grad_ready
#define lt_param_final_fn                lt_grad_ready_fn
#define lt_tape_on_param_read            lt_tape_on_param_use
#define lt_param_read_fn                 lt_param_use_fn
#define lt_role                          lt_param_kind
#define LT_ROLE_WEIGHT                   LT_PARAM_WEIGHT
#define LT_ROLE_BIAS                     LT_PARAM_BIAS
#define LT_ROLE_NORM                     LT_PARAM_NORM
#define LT_ROLE_STAT                     LT_PARAM_STAT
#define LT_ROLE_COUNT                    LT_PARAM_COUNT
#define lt_param_init_role               lt_param_init_kind
#define lt_optim_read_rounded            lt_optim_allow_rounded_grads
#define lt_optim_each                    lt_optim_for_each_slot
#define lt_optim_need                    lt_optim_require_kernel
#define lt_optim_missed                  lt_optim_missed_steps
#define lt_data_parallel_apart           lt_data_parallel_subgroup_bytes
#define lt_data_parallel_sent            lt_data_parallel_bytes_sent
#define lt_local_steps_sent              lt_local_steps_bytes_sent
#define lt_data_parallel_terms           lt_data_parallel_contributions
#define lt_data_parallel_count_terms     lt_data_parallel_count_contributions
#define lt_data_parallel_computed        lt_data_parallel_set_computed
#define lt_data_parallel_computed_by_all lt_data_parallel_total_computed
#define lt_data_parallel_exposed         lt_data_parallel_wait_seconds
#define lt_data_parallel_update          lt_data_parallel_begin_update
#define lt_data_parallel_set             lt_data_parallel_participants
#define lt_data_parallel_statistics      lt_data_parallel_sync_statistics
#define lt_data_parallel_loaded          lt_data_parallel_finish_load
#define lt_data_parallel_gather          lt_data_parallel_gather_state
#define lt_local_steps_meet              lt_local_steps_synchronize
#define lt_checkpoint_mend               lt_checkpoint_repair
#define lt_checkpoint_parts              lt_checkpoint_contents
#define lt_threads_sleep_soon            lt_threads_set_passive_wait
#define lt_comm_what                     lt_comm_call_kind
#define lt_loader_bad                    lt_loader_corrupt
#define lt_embedding_part                lt_embedding_shard
#define lt_program_graph                 lt_job_graph
#define lt_program_graph_add             lt_job_graph_add
#define lt_program_graph_free            lt_job_graph_free
#define lt_program_graph_launch          lt_job_graph_launch
#define lt_program_graph_load            lt_job_graph_load
#define lt_program_graph_new             lt_job_graph_new
#define lt_comm_same                     lt_comm_check_same
#define lt_dataset_side                  lt_dataset_short_side
#define lt_loader_bound                  lt_loader_bottleneck
#define lt_options_answer                lt_options_print_request
#define lt_options_asked                 lt_options_requested
#define lt_options_rest                  lt_options_positional
#define lt_options_rest_count            lt_options_positional_count
#define lt_optim_average                 lt_optim_start_averaging
#define lt_optim_items                   lt_optim_collect_items
#define lt_node_wants                    lt_node_needs_grad
#define lt_node_grad_pass                lt_node_pass_grad_through
#define lt_local_steps_since             lt_local_steps_since_sync
#define lt_local_steps_unfold            lt_local_steps_gather_state
#define lt_local_steps_fold              lt_local_steps_free_gathered
#define lt_trainer_begin_work            lt_trainer_end_checks
#define lt_device_master                 lt_device_master_dtype
#define lt_device_has_fast               lt_device_has_fast_dtype
#define lt_ema_update_after              lt_ema_update_by_steps

#endif
#endif
