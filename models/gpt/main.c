/* train_gpt: trains GPT-2 and similar models. */

#include "gpt.h"
#include "sample.h"

#include "lather/language.h"

int main(int argc, char **argv)
{
    static const lt_trainer_command *const commands[] = {&gpt_sample_command, &lt_plan_command};
    lt_trainer_program program = *lt_language_program();
    program.usage =
        "--data FILE|DIR [OPTION]...  |  sample --weights FILE [OPTION]...  |  reproduce PLAN";
    program.command = commands;
    program.commands = sizeof commands / sizeof *commands;
    return lt_trainer_main(argc, argv, lt_gpt_family(), &program);
}
